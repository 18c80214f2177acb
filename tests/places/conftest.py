"""Fixtures of the tests in real places; without `MANTYX_PLACES` none of them runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

import pytest

if TYPE_CHECKING:
    from .browser import Browser

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("MANTYX_PLACES"):
        return
    skip = pytest.mark.skip(reason="needs what tests/places/setup installs, and MANTYX_PLACES=1")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium for the whole session of tests; each test opens its own pages in it."""
    from .browser import launched

    with launched() as found:
        yield found


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a test puts its pictures: below `MANTYX_PICTURES`, if that is set, to be looked at."""
    base = os.environ.get("MANTYX_PICTURES")
    folder = tmp_path if base is None else Path(base) / re.sub(r"\W+", "_", request.node.name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
