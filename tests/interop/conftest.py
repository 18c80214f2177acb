"""What the interoperability tests share: the versions that they ran with are shown at the end."""

from __future__ import annotations

import os
from typing import Any

import pytest

from .peers import versions


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if os.environ.get("MANTYX_INTEROP"):
        found = ", ".join(f"{name} {version}" for name, version in versions().items())
        terminalreporter.write_line(f"interoperability: {found or 'nothing is there'}")


@pytest.fixture(autouse=True)
def needs_environments() -> None:
    if not os.environ.get("MANTYX_INTEROP"):
        pytest.skip("MANTYX_INTEROP does not name what tests/interop/setup made")
