"""Progress as people see it: the real tqdm and rich, and a line of our own, in a terminal, in a file, in a notebook."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.local import LocalServer, ScriptedModel
from tests.processes import environment

SERVERS = Path(__file__).parent.parent / "mcp_servers"
DEADLINE_S = 60.0

PROGRAM = """
import os, sys, threading
from mantyx_sync import MantyxClient, define_local_mcp
{hide}
fs = define_local_mcp(name="fs", command=[sys.executable, {server!r}, "fs", os.devnull, "echo"])
with MantyxClient() as client:
    print("before")
    for result in client.map(["a", "b", "c", "d"], system_prompt="Help.", tools=[fs], progress={name!r}):
        print(result.text)
    print("threads", [t.name for t in threading.enumerate() if "mantyx" not in t.name and t.name != "MainThread"])
"""
HIDE = "for name in {names!r}: sys.modules[name] = None"


class Seen(NamedTuple):
    out: str
    err: str
    code: int


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(ScriptedModel(lambda request: [f"Answer to {request.prompt}."])) as server:
        yield server


def program(name: str, *hidden: str) -> str:
    hide = HIDE.format(names=hidden) if hidden else ""
    return PROGRAM.format(name=name, hide=hide, server=str(SERVERS / "catalog_server.py"))


def piped(server: LocalServer, code: str) -> Seen:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment(server.client_settings()),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return Seen(done.stdout, done.stderr, done.returncode)


def at_a_terminal(server: LocalServer, code: str, *, only_errors: bool = False) -> Seen:
    """Run a program whose standard error, and output if it is not to be a pipe, is a terminal of 100 columns."""
    ours, theirs = os.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    env = {**environment(server.client_settings()), "TERM": "xterm-256color"}
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if only_errors else theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the last one who had it open has ended
                return
            if not piece:
                return
            shown.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        out, _ = child.communicate(timeout=DEADLINE_S)
        reader.join(DEADLINE_S)
    finally:
        child.kill()
        os.close(ours)
    return Seen((out or b"").decode(), b"".join(shown).decode(), child.returncode)


def last_screen(written: str) -> list[str]:
    """Return the lines that stay on the screen, the cursor's moves obeyed as far as these programs make them."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.startswith("\x1b"):
            count = int(re.sub(r"\D", "", part) or 1) if part[-1] in "ABCD" else 0
            if part[-1] == "A":
                row = max(0, row - count)
            elif part[-1] == "K":
                lines[row] = "" if "2" in part else lines[row][:column]
        else:
            lines[row] = lines[row].ljust(column)[:column] + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


def not_ours() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "mantyx" not in thread.name}


ANSWERS = [f"Answer to {letter}." for letter in "abcd"]

HOW = {
    "tqdm": ("tqdm",),
    "rich": ("rich",),
    "auto": ("auto",),
    "auto, no tqdm": ("auto", "tqdm"),
    "line": ("auto", "tqdm", "rich"),
}


@pytest.mark.parametrize("how", HOW)
def test_a_terminal_shows_servers_and_then_runs_and_keeps_what_is_printed(server: LocalServer, how: str) -> None:
    seen = at_a_terminal(server, program(*HOW[how]), only_errors=True)
    assert seen.code == 0, seen.err
    assert seen.out.split("\n")[:5] == ["before", *ANSWERS]
    assert "threads []" in seen.out, "a thread of theirs was left"
    assert "servers" in seen.err
    assert "starting fs" in seen.err
    screen = "\n".join(last_screen(seen.err))
    assert "servers" not in screen, "that of servers goes away"
    assert re.search(r"runs.*4( of |/)4", screen), screen


@pytest.mark.parametrize("how", ["rich", "auto, no tqdm"])
def test_rich_leaves_what_is_printed_above_its_bar(server: LocalServer, how: str) -> None:
    seen = at_a_terminal(server, program(*HOW[how]))
    assert seen.code == 0, seen.err
    lines = [line for line in last_screen(seen.err) if line]
    assert [line for line in lines if line in ANSWERS] == ANSWERS


INTERRUPTED = """
import os, signal
from mantyx_sync import MantyxClient
client = MantyxClient()
for result in client.map(["a", "b", "c"], system_prompt="Help.", max_workers=1, progress={name!r}):
    print(result.text)
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("name", ["tqdm", "rich", "auto"])
def test_ctrl_c_leaves_the_terminal_as_it_was(server: LocalServer, name: str) -> None:
    seen = at_a_terminal(server, INTERRUPTED.format(name=name), only_errors=True)
    assert seen.out == "Answer to a.\n"
    assert seen.code in (-signal.SIGINT, 1)
    assert "KeyboardInterrupt" in seen.err
    assert seen.err.rfind("\x1b[?25h") >= seen.err.rfind("\x1b[?25l"), "the cursor stays hidden"
    assert "runs" in "\n".join(last_screen(seen.err))


@pytest.mark.parametrize("name", ["tqdm", "rich"])
def test_a_bar_that_was_asked_for_is_in_a_file_too(server: LocalServer, name: str) -> None:
    seen = piped(server, program(name))
    assert (seen.code, seen.out.split("\n")[:5]) == (0, ["before", *ANSWERS])
    assert re.search(r"runs.*4/4", seen.err)


def test_auto_writes_nothing_into_a_file(server: LocalServer) -> None:
    seen = piped(server, program("auto"))
    assert (seen.code, seen.err) == (0, "")


@pytest.mark.parametrize("name", ["tqdm", "rich"])
def test_nothing_of_a_bar_is_left_when_a_loop_is_left(
    server: LocalServer, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = not_ours()
    with MantyxClient(**server.client_settings()) as client:
        loop = client.map(["a", "b", "c"], system_prompt="Help.", max_workers=1, progress=name)
        assert next(loop).text == "Answer to a."
        loop.close()
    assert not_ours() == before
    assert "runs" in capfd.readouterr().err


def test_a_notebook_shows_the_bars(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    for name, value in environment(server.client_settings()).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent))
    cell = textwrap.dedent("""
        from mantyx_sync import MantyxClient
        with MantyxClient() as client:
            print(len(list(client.map(["a", "b", "c", "d"], system_prompt="Help.", progress="{}"))))
    """)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.format(name)) for name in ("auto", "rich")])
    nbclient.NotebookClient(book, timeout=DEADLINE_S, kernel_name="python3").execute()
    for shown in book.cells:
        text = "".join(str(output) for output in shown.outputs)
        assert "4\\n" in text
        assert re.search(r"runs.*4/4", text), text
