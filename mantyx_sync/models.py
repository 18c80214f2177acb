"""The catalog of models a workspace can use (http §3)."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Iterator, Mapping

from mantyx_sync.reprs import dataclass
from mantyx_sync.views import Viewable
from mantyx_sync.wire import Fields

__all__ = ["ModelCatalog", "ModelInfo", "PricingInfo"]


@dataclass(frozen=True)
class PricingInfo:
    """Price of a model in US dollars per million tokens; `None` where the platform gives none."""

    input_per_1m_usd: float | None = None
    output_per_1m_usd: float | None = None
    cache_read_per_1m_usd: float | None = None

    @classmethod
    def read(cls, fields: Fields | None) -> PricingInfo | None:
        """Build it from the fields of a `pricing` object; `None` if there is none."""
        if fields is None:
            return None
        return cls(
            input_per_1m_usd=fields.opt_number("inputPer1MUsd"),
            output_per_1m_usd=fields.opt_number("outputPer1MUsd"),
            cache_read_per_1m_usd=fields.opt_number("cacheReadPer1MUsd"),
        )

    # The names the platform's own package has for them.

    @property
    def inputPer1MUsd(self) -> float | None:  # noqa: N802  (a foreign name, kept for code written for it)
        """The same as `input_per_1m_usd`."""
        return self.input_per_1m_usd

    @property
    def outputPer1MUsd(self) -> float | None:  # noqa: N802  (as above)
        """The same as `output_per_1m_usd`."""
        return self.output_per_1m_usd

    @property
    def cacheReadPer1MUsd(self) -> float | None:  # noqa: N802  (as above)
        """The same as `cache_read_per_1m_usd`."""
        return self.cache_read_per_1m_usd


@dataclass(frozen=True)
class ModelInfo(Viewable):
    """One model. `id` is what `model_id` takes; `source`: `platform_offering` or `workspace_provider`."""

    id: str
    label: str = ""
    provider: str = ""
    vendor_model_id: str = ""
    source: str = ""
    context_window_tokens: int | None = None
    pricing: PricingInfo | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> ModelInfo:
        """Build it from the fields of one entry of `models`."""
        return cls(
            id=fields.text("id"),
            label=fields.opt_text("label") or "",
            provider=fields.opt_text("provider") or "",
            vendor_model_id=fields.opt_text("vendorModelId") or "",
            source=fields.opt_text("source") or "",
            context_window_tokens=fields.opt_int("contextWindowTokens"),
            pricing=PricingInfo.read(fields.opt_fields("pricing")),
            raw=fields.data,
        )


@dataclass(frozen=True)
class ModelCatalog(Viewable):
    """The models of a workspace; it can be looped over and counted."""

    models: tuple[ModelInfo, ...]
    default_model_id: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def from_wire(cls, body: object) -> ModelCatalog:
        """Read the answer of `GET /models`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "model catalog")
        return cls(
            models=tuple(ModelInfo.read(model) for model in fields.objects("models")),
            default_model_id=fields.opt_text("defaultModelId"),
            raw=fields.data,
        )

    def __iter__(self) -> Iterator[ModelInfo]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)
