"""The command: `python -m tests.benchmarks [--quick] [--only NAME] [--json FILE] [--medians] [--setup]`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Dict, List, Optional

from tests.benchmarks import imports
from tests.benchmarks.contenders import NAMES
from tests.benchmarks.report import Section, medians_table, ratios_table, to_json
from tests.benchmarks.runner import CACHE, Runner
from tests.benchmarks.scenarios import FULL, QUICK, scenarios


def main(arguments: Optional[List[str]] = None) -> int:
    size_names = [scenario.name for scenario in scenarios(FULL)] + [imports.NAME]
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Compare mantyx_sync with the platform's own package (peer), a client written by hand with "
        "requests and sseclient-py (naive) and a bare socket (floor). Ratios of one run are what counts.",
    )
    parser.add_argument("--quick", action="store_true", help="about a minute in all instead of eight")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"may be repeated: {', '.join(size_names)}")
    parser.add_argument("--without", action="append", metavar="CONTENDER", default=[], choices=NAMES)
    parser.add_argument("--json", metavar="FILE", help="also write samples, medians, ratios and verdicts there")
    parser.add_argument("--medians", action="store_true", help="also print medians, for comparison within this run")
    parser.add_argument("--setup", action="store_true", help="install the peer into the benchmark's cache and stop")
    options = parser.parse_args(arguments)
    if options.setup:
        return _setup_peer()
    for name in options.only or []:
        if name not in size_names and not any(one.startswith(name) for one in size_names):
            parser.error(f"no scenario {name!r}; there are {', '.join(size_names)}")

    size = QUICK if options.quick else FULL
    pythons = {name: python for name, python in _pythons().items() if name not in options.without}
    if "peer" not in pythons and "peer" not in options.without:
        _say("no peer: set MANTYX_PEER_PYTHON to a Python that has mantyx-sdk, or run --setup once")
    chosen = [one for one in scenarios(size) if _is_chosen(one.name, options.only)]
    sections = []
    with Runner(pythons, size.total_s, _say) as runner:
        if _is_chosen(imports.NAME, options.only):
            outcomes = imports.measure_imports(pythons, size.imports, _say)
            sections.append(Section(imports.NAME, imports.TITLE, imports.GOALS, outcomes))
        for number, scenario in enumerate(chosen):
            share = min(1.0, 2.0 / (len(chosen) - number))  # no scenario takes the time of those behind it
            outcomes = runner.run(scenario, share)
            sections.append(Section(scenario.name, scenario.title, scenario.goals, outcomes))
    for name, reason in runner.unavailable.items():
        _say(f"{name} is not available: {reason}")
    print(ratios_table(sections))
    if options.medians or "ours" in runner.unavailable:
        print()
        print(medians_table(sections))
    print("\nColumns /peer, /naive, /floor: ours divided by theirs, medians of interleaved rounds.")
    if options.json:
        Path(options.json).write_text(json.dumps(to_json(sections, runner.versions), indent=1) + "\n")
    failed = any(section.outcomes["ours"].failure for section in sections if "ours" in section.outcomes)
    return 1 if failed else 0


def _is_chosen(name: str, only: Optional[List[str]]) -> bool:
    return not only or any(name.startswith(one) for one in only)


def _pythons() -> Dict[str, str]:
    found = dict.fromkeys(NAMES, sys.executable)
    peer = os.environ.get("MANTYX_PEER_PYTHON") or str(_peer_python())
    if Path(peer).exists():
        found["peer"] = peer
    else:
        del found["peer"]
    return found


def _peer_python() -> Path:
    return CACHE / "peer" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _setup_peer() -> int:
    """Make an environment for the peer alone: it must not share one with what the tests run in."""
    venv.EnvBuilder(with_pip=True, clear=True).create(CACHE / "peer")
    return subprocess.call([str(_peer_python()), "-m", "pip", "install", "--quiet", "mantyx-sdk"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
