"""Every example runs in an interpreter of its own, quietly, with an account and without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Mapping

import pytest

from mantyx_sync.local import LocalServer

from .processes import environment

EXAMPLES = Path(__file__).parent.parent / "examples"
# What it prints, besides. `account` is what the others share.
SAYS = {
    "a2a_agent": [
        "Order desk: Knows the orders of a small shop.",
        "Agent (completed): ",
        "shipped",
        "there is no order 18",
    ],
    "background_run": ["started run_", "answer: ", "in_stock is 4", "the same answer: "],
    "evals": ["a tool that raises: 2 of 3 passed", "a tool that explains: 3 of 3 passed", "+1"],
    "loom_worker": [
        "stock keeper: Count the stock of the item",
        "count_stock({'item': 'hose'})",
        "There are 4 left.",
        "list: {'hose': 4}",
    ],
    "many_runs": ['"hose"? -> ', '"rake"? -> ', '"shovel"? -> ', '"bucket"? -> ', "18.5"],
    "mcp_tools": [
        "mountains_mountain_height({'mountain': 'Jungfrau'}) at mountains",
        "says: 4158 m",
        "no mountain called",
    ],
    "quickstart": ["[tool call]   get_order({'order_id': '17'})", "shipped", "expected tomorrow", "2 turns"],
    "spacefix_agent": [
        "tools: get_order, ask-support",
        "in a trace of its caller's: True",
        'get_order 17: {"id":"17","item":"Rake","state":"shipped"}',
        "get_order 99: No order 99. Ask the user to confirm the number.",
        "ask-support: ",
        "summarise_order: Summarise this order politely: ",
    ],
    "structured_output": ["Ticket(summary=", "order_ids=["],
    "wsgi_streaming": ["Say hello to the people in the hall."],
}


def run(name: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-W", "error", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, env=dict(env), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    return done


def without_account() -> Mapping[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MANTYX_", "SPACEFIX_"))}
    return {**env, "PYTHONPATH": str(EXAMPLES.parent)}


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SAYS, "account"}


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_without_an_account(name: str) -> None:
    done = run(name, without_account())
    assert done.stdout.startswith("(no MANTYX_API_KEY: using the embedded server at http://127.0.0.1:")
    assert [words for words in SAYS[name] if words not in done.stdout] == []


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_in_the_workspace_of_an_account(name: str) -> None:
    with LocalServer() as server:
        done = run(name, environment(server.client_settings()))
    assert "MANTYX_API_KEY" not in done.stdout
    assert [words for words in SAYS[name] if words not in done.stdout] == []


def test_an_example_that_takes_a_question_takes_a_call_for_help_as_none() -> None:
    command = [sys.executable, str(EXAMPLES / "quickstart.py"), "--help"]
    done = subprocess.run(command, env=without_account(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: quickstart.py")


def test_progress_of_many_runs_is_apart_from_their_answers() -> None:
    done = run("many_runs", without_account())
    assert "4 of 4 done, 0 failed" in done.stderr
    assert "of 4 done" not in done.stdout
