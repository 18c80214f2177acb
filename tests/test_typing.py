"""mypy --strict and pyright accept typical user code and the examples, and refuse typical mistakes, line by line."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import List, Set

import pytest

ROOT = Path(__file__).parent.parent
TYPING = ROOT / "tests" / "typing"
MISTAKES = TYPING / "mistakes.py"
GOOD = [str(TYPING / "user_code.py"), str(TYPING / "tool_signatures.py"), *map(str, ROOT.glob("examples/*.py"))]
MARK = "  # error: "


def checker(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


def run(*command: str) -> str:
    env = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    process = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, env=env)
    assert process.returncode in (0, 1), process.stdout + process.stderr
    return process.stdout


def marked() -> Set[int]:
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if MARK in line}


def test_the_mistakes_are_marked() -> None:
    assert len(marked()) >= 40


@checker("mypy")
def test_mypy_accepts_the_code_and_refuses_the_mistakes(tmp_path: Path) -> None:
    options = ("--config-file=", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path))
    output = run("mypy", *options, *GOOD, str(MISTAKES))
    found = re.findall(r"^(.*\.py):(\d+): error: (.*)$", output, re.MULTILINE)
    assert [line for line in found if not line[0].endswith("mistakes.py")] == []
    assert {int(number) for _, number, _ in found} == marked(), output


@checker("pyright")
def test_pyright_accepts_the_code_and_refuses_the_mistakes() -> None:
    output = run("pyright", "--pythonpath", sys.executable, "--outputjson", *GOOD, str(MISTAKES))
    errors: List[dict] = [d for d in json.loads(output)["generalDiagnostics"] if d["severity"] == "error"]
    assert [d for d in errors if not d["file"].endswith("mistakes.py")] == []
    assert {d["range"]["start"]["line"] + 1 for d in errors} == marked(), errors
