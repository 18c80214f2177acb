"""What importing costs: each statement in a new interpreter, interleaved."""

from __future__ import annotations

import subprocess
from typing import Callable, Dict, List, Mapping, Tuple

from tests.benchmarks.runner import ROOT, Outcome, child_environment
from tests.benchmarks.scenarios import Goal

__all__ = ["GOALS", "NAME", "TITLE", "measure_imports"]

NAME = "import"
TITLE = "import, wall"
GOALS = (
    Goal("client ms", "peer", 0.65),
    Goal("package ms", "naive", 1.2),
    Goal("jsonschema loaded", "", 0.0),
)

# The package alone is compared with `import requests` alone.
_STATEMENTS: List[Tuple[str, str, str]] = [
    ("ours", "client ms", "from mantyx_sync import MantyxClient"),
    ("peer", "client ms", "from mantyx import MantyxClient"),
    ("naive", "client ms", "import json, concurrent.futures, requests, sseclient"),
    ("ours", "package ms", "import mantyx_sync"),
    ("peer", "package ms", "import mantyx"),
    ("naive", "package ms", "import requests"),
]
_CODE = (
    "import time; t = time.perf_counter(); {statement}; t = time.perf_counter() - t; "
    "import sys; print(t * 1000, 'jsonschema' in sys.modules)"
)


def measure_imports(
    pythons: Mapping[str, str], rounds: int, say: Callable[[str], None] = lambda _: None
) -> Dict[str, Outcome]:
    """Time the statements of every contender that has an interpreter. The first round fills the caches."""
    say(TITLE)
    outcomes = {name: Outcome() for name in pythons if name != "floor"}
    for number in range(rounds + 1):
        for name, measure, statement in _STATEMENTS:
            outcome = outcomes.get(name)
            if outcome is None or outcome.failure is not None:
                continue
            done = subprocess.run(
                [pythons[name], "-c", _CODE.format(statement=statement)],
                cwd=str(ROOT),
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=30,
                check=False,
            )
            if done.returncode:
                lines = done.stderr.decode(errors="replace").strip().splitlines()
                outcome.failure = lines[-1] if lines else f"exit code {done.returncode}"
                continue
            if number == 0:
                continue
            milliseconds, loaded = done.stdout.decode().split()
            outcome.add({measure: float(milliseconds)})
            if name == "ours":
                outcome.add({"jsonschema loaded": float(loaded == "True")})
    return outcomes
