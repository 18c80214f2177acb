"""The process of an MCP server: how it is started, what it gets to see, how it ends, and that nothing of it is left."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mantyx_sync.mcp.process
from mantyx_sync import MantyxConfigError
from mantyx_sync.mcp.channel import Era, Outgoing, Waiting
from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.command import ServerCommand, environment, find_program, server_command
from mantyx_sync.mcp.errors import McpConnectionError
from mantyx_sync.mcp.process import Grace
from mantyx_sync.mcp.stdio import StdioChannel
from tests.mcp_stdio import QUICK, Traces, client_of, command, is_running, text_of
from tests.processes import Child
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks for processes in /proc"),
]


NO_SETTINGS = {"api_key": "tok_MARKER", "workspace_slug": "w", "base_url": "http://127.0.0.1:9"}


# --------------------------------------------------------------------------- what is started


def refused(given: Any, *more: Any, **named: Any) -> str:
    with pytest.raises(MantyxConfigError) as caught:
        server_command(given, *more, **named)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("",), "command: got an empty one, must name a program"),
        (("   ",), "command: got an empty one, must name a program"),
        (([],), "command: got an empty one, must name a program"),
        ((None,), "command: got None, must be the name of a program, or a list that begins with it"),
        ((b"npx",), "command: got bytes, must be the name of a program, or a list that begins with it"),
        ((["npx", 1],), "command[1]: got 1, must be a string"),
        ((["npx", None],), "command[1]: got None, must be a string"),
        (("npx", "-y server"), "args: got a string, must be a list of strings"),
        (("npx", [b"-y"]), "args[0]: got bytes, must be a string"),
        (("npx", ["a\0b"]), "args[0]: got a string with a NUL character, must be without one"),
        (("npx", (), "A=1"), "env: got a string, must be a mapping of names to strings"),
        (("npx", (), {"A": 1}), "env['A']: got 1, must be a string"),
        (("npx", (), {"A": None}), "env['A']: got None, must be a string"),
        (("npx", (), {"A": "tok_MARKER\0"}), "env['A']: got a string with a NUL character, must be a string"),
        (("npx", (), {"A=B": "x"}), "env: got the name 'A=B', must have names as keys"),
        (("npx", (), {1: "x"}), "env: got 1, must have names as keys"),
        (("npx", (), None, 5), "cwd: got 5, must be a string"),
    ],
)
def test_what_cannot_be_a_command_is_refused_when_the_client_is_made(given: Any, sentence: str) -> None:
    assert refused(*given) == sentence
    with pytest.raises(MantyxConfigError):
        McpClient.stdio(given[0], *given[1:2], env=(*given, None, None)[2], cwd=(*given, None, None, None)[3])


def test_standard_error_is_kept_or_inherited() -> None:
    with pytest.raises(MantyxConfigError, match="stderr: got 'drop', must be 'keep' or 'inherit'"):
        McpClient.stdio("npx", stderr="drop")


def test_a_command_may_be_a_name_a_list_or_a_path() -> None:
    assert (
        server_command("npx", ["-y", "x"])
        == server_command(["npx", "-y", "x"])
        == server_command(("npx", "-y"), "x"[:1:2] and ["x"])
    )
    assert server_command(Path("/bin/cat")).program == "/bin/cat"
    assert server_command("npx", (), None, Path("/tmp")).cwd == "/tmp"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with programs that are none."""

    def make(name: str, text: str, mode: int = 0o755) -> None:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)

    make("plain.txt", "print()", 0o644)
    make("orphan", "#!/nowhere/python -u\n")
    make("no-first-line", "import sys\n")
    make("with space", f"#!/bin/sh\nexec {' '.join(command())}\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("no-such-program", "command: 'no-such-program' is not found in PATH"),
        ("./no-such-program", "command: './no-such-program' does not exist"),
        ("/nowhere/at/all", "command: '/nowhere/at/all' does not exist"),
        ("{}/folder", "command: '{}/folder' is a folder, must be a program"),
        ("{}/plain.txt", "command: '{}/plain.txt' is not executable"),
        ("{}/plain.txt/x", "command: '{}/plain.txt/x' cannot be looked at: not a directory"),
        ("{}/orphan", "command: '{}/orphan' is a script for '/nowhere/python', which does not exist"),
        (
            "{}/no-first-line",
            "command: '{}/no-first-line' is no program of this system, nor a script whose first line names one "
            "(such as #!/bin/sh)",
        ),
        (
            "npx -y server --token=tok_MARKER",
            "command: 'npx' … is not found in PATH; a string names the program alone, arguments go into a list: "
            "['npx', '-y', 'some-server']",
        ),
    ],
)
def test_a_program_that_cannot_be_started_is_named_in_one_sentence(
    given: str, sentence: str, folder: Path, traces: Traces
) -> None:
    program = given.format(folder)
    name = os.path.basename(program)
    began_at = time.monotonic()
    with McpClient.stdio(program) as client, pytest.raises(McpConnectionError) as caught:
        client.list_tools()
    assert str(caught.value) == f"MCP server {name!r} was not started: {sentence.format(folder)}"
    assert (caught.value.sent, caught.value.exit_code) == (False, None)
    assert "MARKER" not in sentence
    assert time.monotonic() - began_at < 1.0
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_hints_tell_where_the_program_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for path, words in (("/bin", "write './orphan'"), (str(folder), "is a script for")):
        with McpClient.stdio("orphan", env={"PATH": path}) as client, pytest.raises(McpConnectionError, match=words):
            client.list_tools()
    with (
        McpClient.stdio("plain.txt", env={"PATH": str(folder)}) as client,
        pytest.raises(McpConnectionError, match="is not executable"),
    ):
        client.list_tools()


@pytest.mark.parametrize("cwd", ["{}/nowhere", "{}/plain.txt"])
def test_a_folder_that_is_none_is_named(cwd: str, folder: Path) -> None:
    with McpClient.stdio("cat", cwd=cwd.format(folder)) as client, pytest.raises(McpConnectionError) as caught:
        client.list_tools()
    assert f"cwd: got '{cwd.format(folder)}'" in str(caught.value)
    assert "must be an existing folder" in str(caught.value)


def test_a_path_with_a_space_and_a_path_relative_to_the_folder_work(folder: Path, traces: Traces) -> None:
    for program in (str(folder / "with space"), "./with space"):
        with McpClient.stdio(program, cwd=str(folder), env=traces.env, mode="handshake") as client:
            seen = json.loads(text_of(client, "where"))
            assert seen["cwd"] == str(folder)


def test_a_command_line_as_one_string_is_one_argument_of_no_shell(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with McpClient.stdio(f"/bin/echo x; touch {target}") as client, pytest.raises(McpConnectionError):
        client.list_tools()
    assert not target.exists()


def test_descriptors_run_out_without_a_trace() -> None:
    program = """
    import resource
    from mantyx_sync.mcp.client import McpClient
    from mantyx_sync.mcp.errors import McpConnectionError

    def attempt():
        try:
            with McpClient.stdio("false", mode="handshake") as client:
                client.list_tools()
        except McpConnectionError as error:
            return "too many" if "too many open files" in str(error) else str(error)

    attempt()
    used, told = len(os.listdir("/proc/self/fd")) - 1, []
    while not told or "exited with code 1" not in told[-1]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + len(told), 4096))
        told.append(attempt())
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
        assert len(os.listdir("/proc/self/fd")) - 1 == used, os.listdir("/proc/self/fd")
        assert threading.active_count() == 1, threading.enumerate()
    say(set(told[:-1]), len(told) > 8)
    """
    with Child(NO_SETTINGS, program, make_client=False, has_names=False) as child:
        child.expect("{'too many'} True")
        child.ends()


# --------------------------------------------------------------------------- what it gets to see


def test_a_server_sees_a_few_harmless_variables_and_those_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MANTYX_API_KEY", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "HTTP_PROXY", "LANG"):
        monkeypatch.setenv(name, "tok_MARKER")
    monkeypatch.setenv("TERM", "() { :; }")
    monkeypatch.setenv("SHELL", "/bin/sh")
    with client_of(env={"TOKEN": "x", "HOME": "/elsewhere"}) as client:
        seen = json.loads(text_of(client, "environ"))
    seen.pop("LC_CTYPE", None)  # the interpreter's own
    known = {"LOGNAME", "PATH", "SHELL", "USER"} & set(os.environ)
    assert seen == {"TOKEN": "x", "HOME": "/elsewhere", **{name: os.environ[name] for name in known}}


def test_the_environment_on_windows_has_what_launchers_need() -> None:
    ours = {"PATH": "p", "PATHEXT": ".EXE", "COMSPEC": "cmd", "SYSTEMROOT": "C:\\W", "SECRET": "s", "HOME": "h"}
    found = environment(ServerCommand("npx", env={"Path": "mine"}), ours, is_windows=True)
    assert found == {"PATH": "mine", "PATHEXT": ".EXE", "COMSPEC": "cmd", "SYSTEMROOT": "C:\\W"}


def test_on_windows_a_launcher_is_found_by_its_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def which(name: str, path: str | None = None) -> str | None:
        found = tmp_path / f"{os.path.basename(name)}.cmd"
        return str(found) if found.exists() else None

    shim = tmp_path / "npx.cmd"
    shim.write_text("@echo off")
    shim.chmod(0o755)
    monkeypatch.setattr("shutil.which", which)
    assert find_program(ServerCommand("npx"), str(tmp_path), "x", is_windows=True) == str(shim)
    assert find_program(ServerCommand(str(tmp_path / "npx")), "", "x", is_windows=True) == str(shim)


def test_a_server_gets_no_descriptor_but_its_own_three() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        with client_of() as first, client_of() as second:
            assert text_of(first, "descriptors") == text_of(second, "descriptors") == "[0, 1, 2]"
    finally:
        os.close(reading)
        os.close(writing)


def test_a_server_has_a_session_and_group_of_its_own() -> None:
    with client_of("a b", "", "'\"$HOME;&", cwd="/") as client:
        seen = json.loads(text_of(client, "where"))
        (pid,) = json.loads(text_of(client, "pids"))
    assert (seen["sid"], seen["pgid"]) == (pid, pid)
    assert (seen["cwd"], seen["argv"]) == ("/", ["a b", "", "'\"$HOME;&"])


def test_neither_arguments_nor_variables_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "mantyx_sync")
    client = client_of("--token=tok_MARKER", env={"KEY": "tok_MARKER"})
    with client:
        text_of(client, "echo", text="tok_MARKER")
        with pytest.raises(McpConnectionError) as caught:
            text_of(client, "die")
    for shown in (repr(client), str(caught.value), repr(vars(caught.value)), caplog.text):
        assert "MARKER" not in shown
    command = server_command("npx", ["tok_MARKER"], {"KEY": "tok_MARKER"})
    assert "MARKER" not in repr(command)


# --------------------------------------------------------------------------- how it ends


def test_a_server_may_save_its_state_when_its_input_ends(tmp_path: Path, traces: Traces) -> None:
    marker = tmp_path / "marker"
    with client_of(f"marker={marker}", env=traces.env, grace=Grace(5.0, 0.2)) as client:
        text_of(client, "echo", text="x")
        began_at = time.monotonic()
    assert marker.read_text() == "saved"
    assert 0.25 <= time.monotonic() - began_at < 2.0
    traces.assert_none()


@pytest.mark.parametrize(
    ("options", "at_least"),
    [
        ([], 0.0),
        (["ignore-eof"], 0.1),
        (["ignore-eof", "ignore-term"], 0.2),
        (["child=plain"], 0.1),  # its parent is gone at once; a child that reads nothing gets SIGTERM
        (["child=stubborn"], 0.2),
    ],
)
def test_each_step_of_the_end_waits_and_is_the_last_if_it_can(
    options: list[str], at_least: float, traces: Traces
) -> None:
    client = client_of(*options, env=traces.env)
    with client:
        pids = json.loads(text_of(client, "pids"))
        assert len(traces.processes()) == len(pids)
        began_at = time.monotonic()
    took = time.monotonic() - began_at
    traces.assert_none()
    assert at_least <= took < at_least + 0.6  # the machine may be busy


def test_the_times_that_are_promised_are_those_of_the_specification() -> None:
    assert Grace(after_eof=2.0, after_term=2.0) == mantyx_sync.mcp.process.GRACE


def test_what_left_the_session_on_purpose_keeps_nobody_waiting(traces: Traces) -> None:
    client = client_of("child=escaped", env=traces.env)
    with client:
        child = json.loads(text_of(client, "pids"))[1]
        began_at = time.monotonic()
    assert time.monotonic() - began_at < 1.5
    assert is_running(child)
    assert traces.left() == f"process {child}"
    os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["plain", "escaped"])
def test_a_death_is_noticed_although_a_child_holds_the_pipes(
    kind: str, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mantyx_sync.mcp.process._LOOK_S <= 0.5
    monkeypatch.setattr(mantyx_sync.mcp.process, "_LOOK_S", 0.1)
    with client_of(env=traces.env) as client:
        child = int(text_of(client, "child", kind=kind))
        began_at = time.monotonic()
        with pytest.raises(McpConnectionError, match="exited with code 3 before it answered tools/call") as caught:
            text_of(client, "die")
        assert time.monotonic() - began_at < 2.0
        assert "out of cheese" in str(caught.value)
        if kind == "plain":
            wait_until(lambda: not is_running(child), "the child of a dead server goes on", 2)
        else:
            os.kill(child, signal.SIGKILL)
        assert text_of(client, "echo", text="again") == "again"


def test_a_dropped_client_takes_its_server_along(traces: Traces) -> None:
    gc.disable()
    try:
        client = client_of("ignore-eof", env=traces.env)
        assert text_of(client, "echo", text="x") == "x"
        assert len(traces.processes()) == 1
        del client
        traces.assert_none(within=2.0)
    finally:
        gc.enable()


def test_a_client_in_a_cycle_is_collected_as_well(traces: Traces) -> None:
    holder: dict[str, Any] = {"client": client_of("ignore-eof", env=traces.env)}
    holder["me"] = holder
    assert text_of(holder["client"], "echo", text="x") == "x"
    del holder
    gc.collect()
    traces.assert_none(within=2.0)


def test_an_exception_in_the_block_ends_the_server(traces: Traces) -> None:
    def use() -> None:
        with client_of("ignore-eof", env=traces.env) as client:
            text_of(client, "echo", text="x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    traces.assert_none()


def test_closing_again_and_from_several_threads_does_no_harm(traces: Traces) -> None:
    client = client_of("ignore-eof", env=traces.env)
    text_of(client, "echo", text="x")
    threads = [threading.Thread(target=client.close) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    client.close()
    traces.assert_none(within=1.0)


def test_ctrl_c_while_a_server_is_started_leaves_nothing(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        def received(self, message: Any, era: Era) -> None:
            return None

    is_interrupted = threading.Event()

    def interrupted(bell: Any, timeout: float) -> bool:
        monkeypatch.undo()
        is_interrupted.set()
        raise KeyboardInterrupt

    def found_late(*args: Any) -> str:
        is_interrupted.wait(10)  # the start is still going on when Ctrl-C comes
        return find_program(*args)

    channel = StdioChannel(command("ignore-eof"), Nobody(), env=traces.env, grace=QUICK)
    monkeypatch.setattr("mantyx_sync.mcp.process.find_program", found_late)
    monkeypatch.setattr("mantyx_sync.transport.bell.Bell.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        channel.exchange(Outgoing({"jsonrpc": "2.0", "id": 1, "method": "initialize"}, Era.HANDSHAKE), Waiting())
    traces.assert_none(within=3.0)
    # And it can be used afterwards.
    answer = channel.exchange(Outgoing({"jsonrpc": "2.0", "id": 2, "method": "initialize"}, Era.HANDSHAKE), Waiting())
    assert answer["result"]["serverInfo"]["name"] == "handmade"
    channel.close()
    traces.assert_none()


def test_a_server_that_cannot_get_a_thread_is_not_started(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def no_start(thread: threading.Thread) -> None:
        if thread.name.endswith(("-reader", "-stderr")):
            raise RuntimeError("can't start new thread")
        start(thread)

    with client_of(env=traces.env) as client:
        monkeypatch.setattr(threading.Thread, "start", no_start)
        with pytest.raises(McpConnectionError, match="was not started: there is no thread for it"):
            text_of(client, "echo", text="x")
        monkeypatch.undo()
        assert text_of(client, "echo", text="x") == "x"
        client_two = client_of("ignore-eof", env=traces.env)

    def no_drain(thread: threading.Thread) -> None:
        if thread.name.endswith("-stderr"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_drain)
    with client_two, pytest.raises(McpConnectionError, match="was not started: RuntimeError: can't start new thread"):
        text_of(client_two, "echo", text="x")
    traces.assert_none(within=1.0)


def test_programs_with_signal_handlers_of_their_own_are_no_problem() -> None:
    program = """
    import mantyx_sync.mcp.conversation
    from tests.mcp_stdio import client_of, text_of, Traces
    from mantyx_sync.mcp.errors import McpConnectionError

    def reap(*_):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]: pass
        except ChildProcessError:
            pass

    traces = Traces()
    for handler in (signal.SIG_IGN, reap):
        signal.signal(signal.SIGCHLD, handler)
        with client_of(env=traces.env) as client:
            try:
                text_of(client, "die")
            except McpConnectionError as error:
                # That handler may be slower than we are.
                say(error.exit_code in (None, 3), "code 0" in str(error))
            say(text_of(client, "echo", text="on it goes"))

    # As command line programs do: writing to a closed pipe kills them.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    mantyx_sync.mcp.conversation._DEATH_S = 0.1
    with client_of(env=traces.env) as client:
        text_of(client, "close-stdin")
        say(text_of(client, "echo", text="alive"))
    traces.assert_none()
    """
    with Child(NO_SETTINGS, program, make_client=False, has_names=False) as child:
        for _ in range(2):
            child.expect("True False")
            child.expect("on it goes")
        child.expect("alive")
        child.ends()
