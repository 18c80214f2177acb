"""Everything that can go wrong between a Loom service and its clients, against the engine in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync.loom import LoomClient

from .loom_double.caller import Caller
from .loom_double.pace import quick  # noqa: F401 - a fixture
from .loom_double.scenarios import FAULTS, MISHAPS, OPERATIONS, OTHERS, STEPS, check_operation, check_step

pytestmark = pytest.mark.usefixtures("no_leaks")


class InProcess(Caller):
    """The engine and a client, as the table's rows want it."""

    def __init__(self) -> None:
        super().__init__()
        self.client = LoomClient(self, entry="/mcp", timeout=10.0)

    def restart(self) -> None:
        super().restart()
        self.forget_session()

    def forget_sessions(self) -> None:
        self.forget_session()

    def wish(self, **wishes: Any) -> None:
        self.engine.indeterminate_next |= wishes.get("indeterminate", False)
        self.engine.pending_for = wishes.get("pending", 0.0)
        if wishes.get("open_gate"):
            self.engine.gate.set()


@pytest.fixture
def service() -> Iterator[InProcess]:
    made = InProcess()
    yield made
    made.engine.gate.set()  # ends what still waits there


@pytest.mark.parametrize("mishap", MISHAPS)
@pytest.mark.parametrize("tool", OPERATIONS)
def test_an_operation_is_applied_once_at_most_when(service: InProcess, tool: str, mishap: str) -> None:
    check_operation(service, tool, MISHAPS[mishap], True)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_task_has_each_effect_once_at_most_when(service: InProcess, tmp_path: Path, step: str, fault: str) -> None:
    check_step(service, tmp_path / "store", step, fault)


@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.__name__)
def test_what_else_can_go_wrong(
    service: InProcess, tmp_path: Path, scenario: Callable[[InProcess, Path], None]
) -> None:
    scenario(service, tmp_path / "store")
