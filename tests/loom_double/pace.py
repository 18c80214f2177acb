"""A fixture that has what waits between two attempts wait a tenth as long."""

from __future__ import annotations

import pytest

from mantyx_sync.loom import following, operations

__all__ = ["quick"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client and the worker look again soon."""
    monkeypatch.setattr(operations, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(following, "POLL_FIRST_S", 0.02)
