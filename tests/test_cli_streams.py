"""The command line where its streams are closed, full, or of an old encoding, and where others say hostile things."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.cli import main
from mantyx_sync.display.live_line import Line
from mantyx_sync.local import LocalServer, ScriptedModel

from .cli_calls import SETTINGS, Cli, use_server

pytestmark = pytest.mark.usefixtures("no_leaks", "plain_environment")

ROOT = Path(__file__).parent.parent

HOSTILE = "a\x1b[31mred\x1b]52;c;aGk=\x07\rb\x00 Größe 注文 👩‍👧 \u202eRTL\ud800 \x9b2J\u061c"


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(ScriptedModel(lambda _: [[HOSTILE]])) as server:
        with MantyxClient(**server.client_settings()) as client:
            client.run_agent(system_prompt=HOSTILE[:-20], prompt="né\x1b]0;x\x07注文", metadata={"k": "注\x1b[5m"})
            client.create_session(system_prompt="é\x1b[2J").send("注文\x1b[2J")
        yield server


@pytest.fixture(autouse=True)
def _account(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    use_server(server, monkeypatch)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsys, monkeypatch)


def printed(encoding: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> bytes:
    raw = io.BytesIO()
    with monkeypatch.context() as patch:
        stream = io.TextIOWrapper(raw, encoding=encoding)
        patch.setattr(sys, "stdout", stream)
        assert main(list(arguments)) == 0
        assert stream.errors == "strict", "it is as it was"
    return raw.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_whatever_is_said_can_be_printed_in_any_encoding(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    run_id, session_id = server.runs[0].id, server.sessions[0].id
    for arguments in (["runs"], ["runs", run_id], ["sessions"], ["sessions", session_id]):
        shown = printed(encoding, monkeypatch, *arguments)
        assert not set(b"\x1b\x07\x00\x9b") & set(shown if encoding != "utf-8" else b""), "nor does it command a pager"
        assert b"\x1b" not in shown
    for arguments in (["run", "Hi", "--json"], ["run", "Hi", "--events"], ["runs", "--json"], ["sessions", "--json"]):
        found = [json.loads(line) for line in printed(encoding, monkeypatch, *arguments).decode("utf-8").splitlines()]
        assert found
        if "--json" in arguments and arguments[0] == "run":
            assert found[0]["text"] == HOSTILE, "nothing is lost in JSON, whatever the encoding"
    assert printed(encoding, monkeypatch, "runs", run_id, "--text").startswith(b"a\x1b[31mred"), "asked for as it is"


@pytest.mark.parametrize("closed", [["stdout"], ["stderr"], ["stdin", "stdout", "stderr"]], ids="+".join)
@pytest.mark.parametrize("arguments", [["run", "Hi"], ["runs"], ["chat"], ["run", "Hi", "--json", "-v"]], ids=" ".join)
def test_streams_may_be_closed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, closed: list[str], arguments: list[str]
) -> None:
    for name in closed:
        monkeypatch.setattr(sys, name, None)
    assert main(arguments) == 0
    assert all(getattr(sys, name) is None for name in closed)
    assert "mantyx-sync:" not in capsys.readouterr().out, "what is for standard error does not go to the answer"


class _Full(io.RawIOBase):
    """A file on a full disk."""

    def writable(self) -> bool:
        return True

    def write(self, _data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "arguments", [["run", "Hi"], ["run", "Hi", "--json"], ["runs"], ["sessions", "--json"]], ids=" ".join
)
def test_a_full_disk_is_told_and_leaves_no_run(
    server: LocalServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    full = io.TextIOWrapper(io.BufferedWriter(_Full()), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(arguments) == 1
    with pytest.raises(OSError, match="No space"):
        full.close()
    assert "mantyx-sync: the output cannot be written: No space left on device" in capsys.readouterr().err
    assert all(run.status in ("succeeded", "cancelled") for run in server.runs)


def test_a_line_that_is_redrawn_keeps_its_width_in_any_encoding() -> None:
    raw = io.BytesIO()

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    stream = Terminal(raw, encoding="ascii", errors="backslashreplace", write_through=True)
    Line(stream).draw("*", "1 s · Größe 注文\ud800")
    assert b"1 s ? Gr??e ???" in raw.getvalue()
    assert b"\\" not in raw.getvalue()


def test_a_full_disk_behind_standard_error_is_no_reason_to_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = io.TextIOWrapper(io.BufferedWriter(_Full()), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", full)
        assert main(["run", "Hi", "-v"]) == 0
    with pytest.raises(OSError, match="No space"):
        full.close()
    assert capsys.readouterr().out.startswith("a\x1b[31mred")


def test_what_programs_that_a_tool_starts_write_is_not_in_the_answer(server: LocalServer, tmp_path: Path) -> None:
    (tmp_path / "shell.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'print(\"at import\")'])\n"
        "def nothing() -> str:\n    'Do nothing.'\n    return ''\n"
    )
    command = [sys.executable, "-m", "mantyx_sync", "run", "Hi", "--tool", "shell:nothing", "--json"]
    environment = {**os.environ, **server.environment(), "PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=60, check=True)
    assert json.loads(found.stdout)["text"] == HOSTILE
    assert found.stderr == b"at import\n"


@pytest.mark.parametrize("arguments", [["chat"], ["run", "-"]], ids=" ".join)
def test_input_that_is_no_text_is_told(cli: Cli, arguments: list[str]) -> None:
    assert cli(*arguments, said=b"caf\xe9 \xff\n") == 2
    assert "no UTF-8 text" in cli.err


def test_piped_messages_are_utf_8_whatever_the_locale_says(
    server: LocalServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\ufeff注文?\n".encode()), encoding="ascii"))
    assert main(["chat", "-q"]) == 0
    assert server.sessions[-1].messages[-2]["content"] == "注文?"
    assert capsys.readouterr().err.startswith("go on with")
