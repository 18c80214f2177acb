"""What looms leave behind (loom §2): artifacts, whose latest value counts, and records, which never change."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional

from ..reprs import dataclass
from ..wire import Fields
from .runs import loom_name

__all__ = [
    "Artifact",
    "Record",
]

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Artifact:
    """A result of a loom's stage. `data` is there in the detail (`get_artifact`), not in listings."""

    id: str
    loom_name: Optional[str] = None
    stage_name: Optional[str] = None
    revision: Optional[int] = None
    created_at: Optional[str] = None
    updated_at: Optional[str] = None
    data: Any = field(repr=False, default=None)
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Artifact:
        """Build it from the fields of an artifact."""
        return cls(
            id=fields.text("id"),
            loom_name=loom_name(fields),
            stage_name=fields.opt_text("stageName"),
            revision=fields.opt_int("revision"),
            created_at=fields.opt_text("createdAt"),
            updated_at=fields.opt_text("updatedAt"),
            data=fields.data.get("data"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class Record:
    """An entry that a loom wrote and nobody changes."""

    id: str
    loom_name: Optional[str] = None
    stage_name: Optional[str] = None
    created_at: Optional[str] = None
    data: Any = field(repr=False, default=None)
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Record:
        """Build it from the fields of a record."""
        return cls(
            id=fields.text("id"),
            loom_name=loom_name(fields),
            stage_name=fields.opt_text("stageName"),
            created_at=fields.opt_text("createdAt"),
            data=fields.data.get("data"),
            raw=fields.data,
        )
