"""The plugin for pytest, as other people's tests use it: in runs of pytest of their own."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mantyx_sync
from mantyx_sync import MantyxClient, pytest_plugin
from mantyx_sync.local import (
    LocalServer,
    ModelFailure,
    ModelRequest,
    RecordingServer,
    RunScripts,
    ScriptedModel,
    ToolDeclaration,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.recording import read_recording

ROOT = Path(__file__).parent.parent
PLUGIN = "mantyx_sync.pytest_plugin"


def run_pytest(folder: Path, *arguments: str, code: int, **env: str) -> str:
    """Run pytest on a folder, and whatever else is named; return what it said."""
    command = [sys.executable, "-W", "error", "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-rA", *arguments]
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MANTYX_", "PYTEST_")) and name != "CI"
    }
    done = subprocess.run(
        [*command, str(folder)],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


THEIRS = '''
import threading, unittest
import pytest
from mantyx_sync import MantyxClient, MantyxError, tool
from mantyx_sync.local import Pause, ScriptedModel, ToolUse, Usage
from mantyx_sync.local.faults import rate_limited
import mantyx_sync.pytest_plugin

mantyx_sync.pytest_plugin.LEAK_PATIENCE_S = 0.2

@tool
def get_order(order_id: str) -> dict:
    """Look up one order."""
    return {"order": order_id}

def ask(client, prompt="Where is order 17?", **more):
    return client.run_agent(system_prompt="x", prompt=prompt, tools=[get_order], **more)

CALL = [ToolUse("get_order", {"order_id": "17"})]

@pytest.mark.mantyx(script=[CALL, "Shipped."], faults=[rate_limited(0)])
def test_good_marker(mantyx_server, mantyx_client, mantyx_no_leaks):
    assert ask(mantyx_client).text == "Shipped."
    assert mantyx_server.sent.run.tool_call("get_order").value == {"order": "17"}

def test_good_rules(mantyx_client):
    assert "17" in ask(mantyx_client).text

def test_good_env(mantyx_server, mantyx_env):
    mantyx_server.script("One.", prompt="one", usage=Usage(3, 4))
    mantyx_server.script("Two.", times=2)
    with MantyxClient() as client:
        assert [ask(client, prompt).text for prompt in ("two", "one", "deux")] == ["Two.", "One.", "Two."]
        assert mantyx_env["MANTYX_BASE_URL"] == mantyx_server.url

@pytest.mark.mantyx(model=ScriptedModel([["Any."]]), workspace_slug="theirs")
class TestGood:
    def test_good_class(self, mantyx_client, mantyx_server):
        assert mantyx_client.workspace_slug == "theirs"
        assert [ask(mantyx_client).text, ask(mantyx_client).text] == ["Any.", "Any."]

class GoodOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _mantyx(self, mantyx_server, mantyx_client):
        self.server, self.client = mantyx_server, mantyx_client

    def test_good_unittest(self):
        self.server.script("Yes.")
        self.assertEqual(ask(self.client).text, "Yes.")

    @unittest.skip("not today")
    def test_skipped_unittest(self):
        pass

def test_skipped(mantyx_server):
    mantyx_server.script("Unused.")
    pytest.skip("not today")

@pytest.mark.xfail(strict=True)
def test_expected(mantyx_server):
    mantyx_server.script("Unused.")

def test_bad_unused(mantyx_server, mantyx_client):
    mantyx_server.script("One.", prompt="nobody asks this")
    mantyx_server.script(CALL, "Shipped.")
    mantyx_server.script("Three.", times=3)
    with pytest.raises(MantyxError):
        ask(mantyx_client, timeout=0.0001)
    ask(mantyx_client, "a"), ask(mantyx_client, "b")

def test_bad_dry(mantyx_server, mantyx_client):
    mantyx_server.script(CALL)
    try:
        ask(mantyx_client)
    except MantyxError as error:
        assert "add what it says then" in str(error)

def test_bad_tools(mantyx_server, mantyx_client):
    mantyx_server.script("One.", tools=["refund"])
    with pytest.raises(MantyxError):
        ask(mantyx_client)

class BadOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _mantyx(self, mantyx_server):
        self.server = mantyx_server

    def test_bad_unittest(self):
        self.server.script("Nobody asks.")

def test_bad_leak(mantyx_server, mantyx_client, mantyx_no_leaks):
    mantyx_server.script(["One.", Pause(threading.Event())])
    mantyx_client.start_agent(system_prompt="x", prompt="y")

@pytest.mark.mantyx(skript=["One."])
def test_bad_marker(mantyx_server):
    pass

@pytest.mark.mantyx("One.")
def test_bad_positional(mantyx_server):
    pass

@pytest.mark.mantyx(host="example.org")
def test_bad_value(mantyx_server):
    pass

def test_bad_recording(mantyx_replay):
    pass

def test_bad_first(mantyx_server, mantyx_client):
    mantyx_server.script("One.", "Two.")
    assert ask(mantyx_client) == "its own error"

class BadOwn(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _mantyx(self, mantyx_server):
        self.server = mantyx_server

    def test_bad_own(self):
        self.server.script("Nobody asks.", times=7)
        self.fail("its own failure")

def test_bad_sent(mantyx_server):
    assert mantyx_server.sent.run
'''

SENTENCES = {
    "test_bad_unused": "script 1 (prompt='nobody asks this') was not played: no run came for it",
    "test_bad_dry": "script 1 has 1 turn, and run ",
    "test_bad_tools": "script 1 wants the tool 'refund', and run ",
    "BadOld::test_bad_unittest": "script 1 was not played: no run came for it",
    "test_bad_leak": "still goes on at the server (prompt 'y')",
    "test_bad_marker": "mark.mantyx: got skript=, must be one of script, ",
    "test_bad_positional": "mark.mantyx: takes keywords only, as in script=[…]",
    "test_bad_value": "mark.mantyx: host must be a loopback address such as 127.0.0.1, got 'example.org'",
    "test_bad_recording": "there is no recording ",
    "test_bad_first": "script 1 was not used up: run ",
    "BadOwn::test_bad_own": "AssertionError: its own failure\n",
    "test_bad_sent": "no runs were started, not one",
}


RECORDED = """
import os
import pytest

def ask(client):
    return client.run_agent(system_prompt="x", prompt="Hello " + os.environ.get("WHOM", "you")).text

def test_recorded(mantyx_replay, mantyx_client):
    assert "Hello" in ask(mantyx_client)

@pytest.mark.mantyx(recording="named.jsonl", secrets=["Hello"])
class TestIt:
    @pytest.mark.parametrize("odd", ["a/b: c"])
    def test_named(self, mantyx_replay, mantyx_client, odd):
        ask(mantyx_client)

    def test_other(self, mantyx_replay, mantyx_client):
        ask(mantyx_client)

def test_failing(mantyx_replay, mantyx_client, monkeypatch):
    monkeypatch.setenv("WHOM", "them")
    ask(mantyx_client)
    assert False
"""
ALSO_RECORDED = """
import unittest

@pytest.mark.mantyx(recording="named.jsonl")
def test_unlike(mantyx_replay, mantyx_client, monkeypatch):
    monkeypatch.setenv("WHOM", "others")
    ask(mantyx_client)

@pytest.mark.parametrize("odd", ["a b", "a_b", "A_B"])
def test_odd(mantyx_replay, mantyx_client, odd):
    ask(mantyx_client)

class Old(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _mantyx(self, mantyx_replay, mantyx_client):
        self.client = mantyx_client

    def test_failing(self):
        ask(self.client)
        self.fail()

    def test_skipped(self):
        ask(self.client)
        self.skipTest("not today")

    def test_good(self):
        ask(self.client)
"""


def test_tests_that_use_it_pass_or_fail_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    (tmp_path / "test_recorded.py").write_text(RECORDED)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"
    )
    for name in ("test_recorded.test_recorded", "named", "test_recorded.test_failing"):
        with LocalServer(ScriptedModel([["Hello."]])) as server:
            recorder = RecordingServer(tmp_path / "recordings" / f"{name}.jsonl", **server.client_settings())
            with recorder, MantyxClient(**recorder.client_settings()) as client:
                client.run_agent(system_prompt="x", prompt="Hello you")
    proxy = "http://127.0.0.1:9"  # nothing may go there
    said = run_pytest(tmp_path, str(ROOT / "examples" / "testing"), code=1, HTTP_PROXY=proxy, http_proxy=proxy)
    found: dict[str, set[str]] = {}
    for outcome, file, name in re.findall(r"^([A-Z]+) (\S*?)::(\S+)", said, re.MULTILINE):
        found.setdefault(f"{outcome} {Path(file).name}", set()).add(name)
    assert found.pop("PASSED test_theirs.py") == {
        "test_good_marker",
        "test_good_rules",
        "test_good_env",
        "TestGood::test_good_class",
        "GoodOld::test_good_unittest",
    }, said
    assert found.pop("FAILED test_theirs.py") | found.pop("ERROR test_theirs.py") == set(SENTENCES), said
    assert found.pop("XFAIL test_theirs.py") == {"test_expected"}
    assert found.pop("PASSED test_recorded.py") == {"test_recorded", "TestIt::test_named[a/b:", "TestIt::test_other"}
    assert found.pop("FAILED test_recorded.py") == {"test_failing"}
    assert len(found.pop("PASSED test_helpdesk.py")) >= 9  # the example
    assert not found
    assert len(re.findall(r"^SKIPPED", said, re.MULTILINE)) == 2
    for name, sentence in SENTENCES.items():
        assert sentence in said, (name, said)
    assert re.search(r"== 'its own error'\n(.*\n)*?-+ mantyx: not as written -+\nscript 1 was not used up", said)
    assert re.search(
        r"its own failure\n(.*\n){,9}-+ mantyx: not as written -+\nscript 1 was not played: no run came for it", said
    )
    assert re.search("script 3 was played [12] of 3 times", said)
    assert "test_theirs.py::test_bad_recording' --mantyx-record" in said
    assert 'prompt: recorded "Hello you", now "Hello them"' in said
    assert "warning" not in said.lower().replace("filterwarnings", "")


def test_recordings_are_made_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(RECORDED + ALSO_RECORDED)
    folder = tmp_path / "recordings"
    with LocalServer(ScriptedModel([["Hello to you."]])) as server:
        account = {
            "MANTYX_API_KEY": server.api_key,
            "MANTYX_WORKSPACE_SLUG": server.workspace_slug,
            "MANTYX_BASE_URL": server.url,
        }
        said = run_pytest(tmp_path, "--mantyx-record", code=1, **account)
    # What one test has made is played to the others that have it.
    assert len(server.runs) == 9
    assert "FAILED test_theirs.py::test_unlike" in said
    assert "It was made by test_theirs.py::TestIt::test_named[a/b: c] just now" in said
    # Of tests that failed or were skipped nothing is kept.
    kept = {re.sub("-[0-9a-f]{8}", "-…", path.name) for path in folder.iterdir()}
    names = ("Old.test_good", "test_odd_A_B_-…", "test_odd_a_b_", "test_odd_a_b_-…", "test_recorded")
    assert kept == {"named.jsonl", *(f"test_theirs.{name}.jsonl" for name in names)}
    assert "Hello" not in (folder / "named.jsonl").read_text()
    assert len(read_recording(folder / "named.jsonl")) == 2


def test_other_tests_have_other_files() -> None:
    names = ["a.b", "a.b[1]", "a.b[a b]", "a.b[a_b]", "a.b[A_B]", "a.b[../../x]", "a.b[ü]", "a.b[ö]", "a.b[\ud800]"]
    names += ["x" * 300, "x" * 301, "a.b[CON]", "a.b[a\nb]", "a.b[a][b]"]
    files = [pytest_plugin._file_name(name) for name in names]
    assert files[:2] == ["a.b", "a.b_1_"]
    assert len({file.lower() for file in files}) == len(names)
    assert all(re.fullmatch(r"[\w.+-]{1,120}", file, re.ASCII) for file in files)


def test_what_an_old_pytest_lacks_is_not_needed() -> None:
    """Loaded by an entry point, it must not fail a pytest that has nothing to do with it."""
    assert "pytest.Stash" not in Path(pytest_plugin.__file__).read_text(encoding="utf-8")
    assert "PYTEST_DONT_REWRITE" in (mantyx_sync.__doc__ or "")  # else it warns those who have imported us before


def test_recording_needs_an_account_and_is_refused_on_machines_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, str]] = []
    config: Any = SimpleNamespace(
        addinivalue_line=lambda name, line: said.append((name, line)), getoption=lambda name: True
    )
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.UsageError, match="--mantyx-record would run agents on a real account"):
        pytest_plugin.pytest_configure(config)
    monkeypatch.setenv("CI", "false")
    pytest_plugin.pytest_configure(config)
    assert said[0][0] == "markers"


def test_pytest_finds_it_by_itself_and_does_not_load_it_twice() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    # By the module's own name: pluggy refuses what `-p` has loaded under one name and an entry point under another.
    assert settings["options.entry_points"]["pytest11"].split() == [PLUGIN, "=", PLUGIN]


def test_it_costs_nothing_where_it_is_not_used() -> None:
    code = (
        "import pytest, sys, threading\n"
        "before = set(sys.modules)\n"
        f"import {PLUGIN}\n"
        "new = set(sys.modules) - before\n"
        "assert not {name for name in new if name.split('.')[0] in ('requests', 'urllib3', 'ssl')}, new\n"
        "ours = sorted(name for name in new if name.startswith('mantyx_sync'))\n"
        "assert ours == ['mantyx_sync', 'mantyx_sync._version', 'mantyx_sync.pytest_plugin'], ours\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60, cwd=ROOT)


# -------------------------------------------------------------------------------- scripts for each run


def _request(run_id: str, prompt: str = "Hello", *, tools: tuple[str, ...] = ()) -> ModelRequest:
    declared = [ToolDeclaration(name, "", {}) for name in tools]
    return ModelRequest([{"role": "user", "content": prompt}], declared, {}, 0, run_id)


def test_each_run_plays_the_first_script_that_fits_it() -> None:
    scripts = RunScripts()
    scripts.add("by text", prompt="one")
    scripts.add("by pattern", prompt=re.compile("^t.o$"))
    scripts.add("by function", prompt=str.isupper)
    scripts.add("any", "more", times=None)
    asked = [("r1", "THREE"), ("r2", "two"), ("r3", "one"), ("r4", "one"), ("r5", "else"), ("r4", "one")]
    said = [next(iter(scripts.complete(_request(*one)))) for one in asked]
    assert said == ["by function", "by pattern", "by text", "any", "any", "more"]
    assert scripts.problems() == ["script 4 was not used up: run r5 ended after 1 of 2 turns"]
    assert scripts.problems(unfinished=["r5"]) == []
    with pytest.raises(AssertionError, match="was not used up"):
        scripts.assert_used_up()


def test_turns_cost_what_the_script_says() -> None:
    scripts = RunScripts()
    scripts.add(["a", ToolUse("t")], ["b", TurnEnd("end_turn")], ["c", TurnEnd(usage=Usage(9))], usage=Usage(1, 2))
    ends = [[part for part in scripts.complete(_request("r")) if isinstance(part, TurnEnd)] for _ in range(3)]
    assert ends == [[TurnEnd(None, Usage(1, 2))], [TurnEnd("end_turn", Usage(1, 2))], [TurnEnd(None, Usage(9))]]


def test_a_run_without_a_script_and_bad_scripts_are_told_of() -> None:
    scripts = RunScripts()
    with pytest.raises(ModelFailure, match=r"there is no script for run r0 \('Hello'\): none was added"):
        list(scripts.complete(_request("r0")))
    scripts.add("One.", prompt="one")
    with pytest.raises(
        ModelFailure, match=r"no script fits run r1 \('two'\); still to be played: script 1 \(prompt='one'\)"
    ):
        list(scripts.complete(_request("r1", "two")))
    list(scripts.complete(_request("r2", "one")))
    with pytest.raises(ModelFailure, match=r"there is no script left for run r3 .*: 1 script had been added"):
        list(scripts.complete(_request("r3", "one")))
    with pytest.raises(ValueError, match="turns: got none"):
        scripts.add()
    with pytest.raises(ValueError, match="times: got 0, must be 1 or above"):
        scripts.add("x", times=0)
    assert len(scripts.problems()) == 3
