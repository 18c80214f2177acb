"""The MCP client against servers that others wrote: one table of servers and scenarios (mcp-client §10).

Rows are in `mcp_rows.py`, scenarios in `mcp_…_scenarios.py`; the versions are printed at the end of the run.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator, Optional

import pytest

from . import mcp_everything_scenarios, mcp_filesystem_scenarios, mcp_python_scenarios
from .driving import Scenario
from .mcp_rows import EVERYTHING, FILESYSTEM, PYTHON, Row, running

SCENARIOS: dict[str, dict[str, Scenario]] = {
    "python": mcp_python_scenarios.SCENARIOS,
    "everything": mcp_everything_scenarios.SCENARIOS,
    "filesystem": mcp_filesystem_scenarios.SCENARIOS,
}

TABLE = [(row, name) for row in [*PYTHON, *EVERYTHING, *FILESYSTEM] for name in SCENARIOS[row.kind]]


class Stage:
    """Keeps one server running, and one client of it, for all the scenarios of its row."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._row: Optional[Row] = None
        self._open = contextlib.ExitStack()

    def set_for(self, row: Row) -> None:
        if row is self._row:
            return
        self.clear()
        self.server = self._open.enter_context(running(row, self._folders.mktemp("files")))
        self.client = self._open.enter_context(self.server.client())
        self._row = row

    def clear(self) -> None:
        self._row = None
        self._open.close()
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("mantyx")]
        assert not left, left


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory)
    yield stage
    stage.clear()


@pytest.mark.parametrize(("row", "name"), TABLE, ids=[f"{row.name}-{name}" for row, name in TABLE])
def test_every_server_passes_every_scenario(stage: Stage, row: Row, name: str) -> None:
    stage.set_for(row)
    SCENARIOS[row.kind][name](stage.client, stage.server)
