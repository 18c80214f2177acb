"""The MCP client over stdio: every call gets its own answer or a typed error, at once, whatever the server does."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

import mantyx_sync.mcp.conversation
import mantyx_sync.mcp.process
from mantyx_sync.mcp import McpTimeoutError
from mantyx_sync.mcp.channel import Cancellation, Era, Outgoing, Waiting
from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.conversation import Conversation
from mantyx_sync.mcp.errors import McpCancelled, McpConnectionError, McpProtocolError, McpRequestError, McpSessionGone
from mantyx_sync.mcp.pipes import MAX_POSTED_BYTES, Descriptor, Piece
from mantyx_sync.mcp.polled_pipes import PolledOutlet
from mantyx_sync.mcp.stderr_tail import KEPT_BYTES, last_lines
from mantyx_sync.mcp.stdio import StdioChannel
from tests.mcp_stdio import QUICK, Traces, client_of, command, is_running, text_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks for processes in /proc"),
]

BOTH = pytest.mark.parametrize("pipes", ["polled", "threaded"], indirect=True)
"""For what has to work on Windows as well: there, threads wait for the pipes."""


@pytest.fixture
def pipes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(mantyx_sync.mcp.process, "CAN_POLL", request.param == "polled")
    kind: str = request.param
    return kind


@pytest.fixture
def client() -> Iterator[McpClient]:
    traces = Traces()
    with client_of("threads", env=traces.env) as client:
        yield client
    del client
    gc.collect()
    traces.assert_none(within=2.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a server with the option `log=…` writes down what it reads."""
    return tmp_path / "log"


def seen(log: Path, method: str) -> list[Any]:
    """Return the messages of a method that the server has read."""
    lines = log.read_bytes().splitlines() if log.exists() else []
    return [message for message in map(json.loads, lines) if message.get("method") == method]


class Nobody:
    """Takes what a server sends unasked, and does nothing."""

    def received(self, message: Any, era: Era) -> None:
        return None


NOBODY = Nobody()


@contextlib.contextmanager
def opened(*options: str) -> Iterator[StdioChannel]:
    channel = StdioChannel(command(*options), NOBODY, grace=QUICK)
    try:
        yield channel
    finally:
        channel.close()


def ask(channel: StdioChannel, number: int, tool: str, generation: int | None = None, **waiting: Any) -> Any:
    given = waiting.pop("arguments", {})
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": given}}
    waiting.setdefault("deadline", time.monotonic() + 20)
    return channel.exchange(Outgoing(message, Era.HANDSHAKE, generation=generation), Waiting(**waiting))


# --------------------------------------------------------------------------- a server that dies


@pytest.mark.parametrize("mode", ["handshake", "auto", "stateless"])
def test_a_server_that_dies_at_its_start_tells_why(mode: str) -> None:
    options = {"handshake": "die-at=initialize", "auto": "die-at=server/discover", "stateless": "die-at=tools/list"}
    began_at = time.monotonic()
    with client_of(options[mode], mode=mode) as client:
        if mode == "auto":  # an old server that a probe kills is started again for the handshake
            assert text_of(client, "echo", text="x") == "x"
            return
        with pytest.raises(McpConnectionError) as caught:
            client.list_tools()
    method = options[mode].partition("=")[2]
    assert f"exited with code 3 before it answered {method}; the end of its stderr: usage: server" in str(caught.value)
    assert caught.value.exit_code == 3
    assert caught.value.stderr_tail == "usage: server [options]\n"
    assert time.monotonic() - began_at < 2.0
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.exit_code, again.stderr_tail) == (3, caught.value.stderr_tail)


@BOTH
def test_every_call_that_waits_fails_at_once_when_the_server_dies(pipes: str, log: Path) -> None:
    failures: list[Any] = []

    def call() -> None:
        with pytest.raises(McpConnectionError) as caught:
            client.call_tool("never")
        failures.append((caught.value, time.monotonic()))

    with client_of("threads", f"log={log}") as client:
        text_of(client, "echo", text="x")
        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(seen(log, "tools/call")) == 3, "the calls should have arrived")
        killed_at = time.monotonic()
        with pytest.raises(McpConnectionError, match="exited with code 5"):
            text_of(client, "die", code=5)
        for thread in threads:
            thread.join(5)
        errors = [error for error, _ in failures]
        assert len({id(error) for error in errors}) == len(errors) == 2
        assert all("exited with code 5 before it answered tools/call" in str(error) for error in errors)
        assert all("about to die / Traceback: out of cheese" in str(error) for error in errors)
        assert all(error.sent is None for error in errors)
        assert all(at - killed_at < 1.5 for _, at in failures)
        # The next call starts it again, and nothing of the last life is sent a second time.
        assert text_of(client, "echo", text="again") == "again"
    calls = [message["params"]["name"] for message in seen(log, "tools/call")]
    assert calls == ["echo", "never", "never", "die", "echo"]
    assert len(seen(log, "initialize")) == 2


def has_exited(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # reaped already
        return True


def test_a_signal_is_named(client: McpClient) -> None:
    with pytest.raises(McpConnectionError, match="was killed by SIGKILL before it answered") as caught:
        text_of(client, "kill")
    assert caught.value.exit_code == -signal.SIGKILL


@pytest.mark.parametrize("options", [[], ["stateless"]])
def test_a_death_between_calls_is_made_good_by_the_next_call(options: list[str]) -> None:
    with client_of(*options) as client:
        pids = []
        for _ in range(5):
            (pid,) = json.loads(text_of(client, "pids"))
            pids.append(pid)
            os.kill(pid, signal.SIGKILL)
            # The next call may come before the reading thread has noticed.
            wait_until(lambda: has_exited(pid), "the server should be dead")  # noqa: B023
    assert len(set(pids)) == 5


def test_a_server_that_closes_its_output_is_ended(client: McpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.mcp.process, "_EXIT_S", 0.2)
    (pid,) = json.loads(text_of(client, "pids"))
    with pytest.raises(McpConnectionError, match="closed its output without exiting before it answered"):
        text_of(client, "close-stdout")
    assert text_of(client, "echo", text="another") == "another"
    assert not is_running(pid)


def test_a_server_that_closes_its_input_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.mcp.conversation, "_DEATH_S", 0.2)
    with client_of() as client:
        (pid,) = json.loads(text_of(client, "pids"))
        assert text_of(client, "close-stdin") == "closed"
        assert text_of(client, "echo", text="another") == "another"
        assert not is_running(pid)


def test_whatever_the_reading_thread_meets_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of() as client:
        text_of(client, "echo", text="x")

        def fail(conversation: Conversation, data: bytes) -> None:
            raise MemoryError

        monkeypatch.setattr(Conversation, "feed", fail)
        began_at = time.monotonic()
        with pytest.raises(McpConnectionError, match=r"could not be read from any more \(MemoryError\)"):
            text_of(client, "echo", text="x")
        assert time.monotonic() - began_at < 1.0
        monkeypatch.undo()
        assert text_of(client, "echo", text="x") == "x"


def test_a_request_for_a_generation_goes_there_or_nowhere() -> None:
    with opened() as channel:
        assert channel.generation == 0
        with pytest.raises(McpSessionGone, match="has ended; tools/call was not sent"):
            ask(channel, 1, "echo", generation=1)
        ask(channel, 2, "pids")
        first = channel.generation
        assert first == 1
        with pytest.raises(McpConnectionError):
            ask(channel, 3, "die", generation=first)
        with pytest.raises(McpSessionGone, match="has ended; tools/call was not sent"):
            ask(channel, 4, "echo", generation=first)
        assert channel.generation == first
        ask(channel, 5, "pids")
        assert channel.generation == first + 1
        with pytest.raises(McpSessionGone, match="was started anew; tools/call was not sent"):
            ask(channel, 6, "echo", generation=first)


# --------------------------------------------------------------------------- time


@BOTH
def test_a_call_that_is_never_answered_ends_at_its_deadline_and_disturbs_no_other(pipes: str, log: Path) -> None:
    with client_of("threads", f"log={log}") as client:
        text_of(client, "echo", text="x")
        failed = threading.Event()

        def stuck() -> None:
            with pytest.raises(McpTimeoutError, match=r"tools/call: no answer after 0\.\d s; the server may have"):
                client.call_tool("never", timeout=0.4)
            failed.set()

        thread = threading.Thread(target=stuck)
        thread.start()
        while thread.is_alive():
            assert text_of(client, "echo", text="y") == "y"
        assert failed.is_set()
        (never,) = [call for call in seen(log, "tools/call") if call["params"]["name"] == "never"]
        wait_until(lambda: bool(seen(log, "notifications/cancelled")), "the server should be told")
        (told,) = seen(log, "notifications/cancelled")
        assert told["params"]["requestId"] == never["id"]
        assert told["params"]["reason"].startswith("timed out after 0.")


def test_progress_extends_the_idle_time_but_not_the_deadline(client: McpClient) -> None:
    heard: list[Any] = []
    with pytest.raises(McpTimeoutError, match="no answer after"):
        client.call_tool(
            "progress", {"count": 100, "pause": 0.02}, timeout=0.5, idle_timeout=0.4, on_progress=heard.append
        )
    assert 5 < len(heard) < 40
    with pytest.raises(McpTimeoutError, match=r"no message for 0.2 s \(idle_timeout\)"):
        client.call_tool("progress", {"count": 3, "ends": False}, timeout=20, idle_timeout=0.2)


def test_a_late_answer_is_dropped_and_the_next_call_gets_its_own(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "mantyx_sync.mcp")
    with client_of("threads", f"log={log}") as client:
        text_of(client, "echo", text="x")
        with pytest.raises(McpTimeoutError):
            client.call_tool("late", {"seconds": 0.3}, timeout=0.1)
        wait_until(lambda: "an answer that nobody waits for" in caplog.text, "the answer should come late")
        assert text_of(client, "echo", text="own") == "own"
    assert len(seen(log, "notifications/cancelled")) == 1
    assert [call["params"]["name"] for call in seen(log, "tools/call")] == ["echo", "late", "echo"]


def test_opening_is_never_cancelled_on_the_wire(log: Path) -> None:
    with client_of("silent-at=initialize", f"log={log}", start_timeout=0.3) as client, pytest.raises(TimeoutError):
        client.list_tools()
    assert len(seen(log, "initialize")) == 1
    assert not seen(log, "notifications/cancelled")


def test_a_call_that_is_cancelled_ends_at_once_and_the_server_is_told(log: Path) -> None:
    with client_of("threads", f"log={log}") as client:
        text_of(client, "echo", text="x")
        cancelled = Cancellation()
        timer = threading.Timer(0.1, cancelled.set)
        timer.start()
        with pytest.raises(McpCancelled, match="tools/call was cancelled; the server may have executed it"):
            client.call_tool("never", cancelled=cancelled, timeout=20)
        timer.join()
        wait_until(lambda: bool(seen(log, "notifications/cancelled")), "the server should be told")
        with pytest.raises(McpCancelled, match="tools/call was cancelled"):
            client.call_tool("echo", {"text": "late"}, cancelled=cancelled)
        assert text_of(client, "echo", text="x") == "x"
    assert [call["params"]["name"] for call in seen(log, "tools/call")].count("echo") <= 3


def test_closing_ends_calls_that_wait(client: McpClient) -> None:
    text_of(client, "echo", text="x")
    timer = threading.Timer(0.1, client.close)
    timer.start()
    with pytest.raises(McpConnectionError, match="the client was closed meanwhile; the server may have executed it"):
        client.call_tool("never")
    timer.join()


# --------------------------------------------------------------------------- size


@BOTH
def test_large_messages_go_both_ways_at_once(pipes: str) -> None:
    text = "é" * 1_000_000
    found: list[bool] = []

    def work(number: int) -> None:
        found.append(text_of(client, "echo", text=text + str(number)) == text + str(number))

    with client_of("threads") as client:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert found == [True] * 4
        assert len(text_of(client, "big", size=10_000_000)) == 10_000_000


def test_an_answer_may_come_in_small_pieces(client: McpClient) -> None:
    assert len(text_of(client, "tiny-writes", size=100_000)) == 100_000


@BOTH
def test_a_server_that_does_not_read_cannot_hold_a_call_beyond_its_deadline(
    pipes: str, log: Path, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    with client_of(f"log={log}") as client:
        assert text_of(client, "stop-reading", until=str(go_on)) == "not reading"
        began_at = time.monotonic()
        with pytest.raises(McpTimeoutError, match="did not read the request in time; the server may have executed"):
            client.call_tool("size", {"text": "x" * 3_000_000}, timeout=0.2)
        with pytest.raises(McpTimeoutError, match="did not read the request in time; it was not sent"):
            client.call_tool("echo", {"text": "y" * 100}, timeout=0.1)
        cancelled = Cancellation()
        cancelled.set()
        with pytest.raises(McpCancelled, match="it was not sent"):
            client.call_tool("echo", {"text": "z"}, cancelled=cancelled)
        assert time.monotonic() - began_at < 2.0
        go_on.touch()
        # What was begun is completed, and cancelled; what was not is not sent any more.
        assert text_of(client, "echo", text="on it goes") == "on it goes"
    calls = seen(log, "tools/call")
    assert [(call["params"]["name"], len(call["params"]["arguments"].get("text", ""))) for call in calls] == [
        ("stop-reading", 0),
        ("size", 3_000_000),
        ("echo", len("on it goes")),
    ]
    (told,) = seen(log, "notifications/cancelled")
    assert told["params"]["requestId"] == calls[1]["id"]


@BOTH
def test_closing_and_dying_end_a_write_that_waits(pipes: str) -> None:
    with client_of() as client:
        (pid,) = json.loads(text_of(client, "pids"))
        text_of(client, "stop-reading", until="/nowhere/ever")
        timer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
        timer.start()
        began_at = time.monotonic()
        with pytest.raises(McpConnectionError, match="was killed by SIGKILL before it answered tools/call"):
            client.call_tool("size", {"text": "x" * 3_000_000})
        timer.join()
        text_of(client, "stop-reading", until="/nowhere/ever")
        timer = threading.Timer(0.1, client.close)
        timer.start()
        with pytest.raises(McpConnectionError, match="the client was closed meanwhile"):
            client.call_tool("size", {"text": "x" * 3_000_000})
        timer.join()
        assert time.monotonic() - began_at < 4.0


def test_a_message_beyond_the_limit_fails_its_call_and_no_other() -> None:
    results: list[str] = []
    with client_of("threads", max_message_bytes=50_000) as client:
        waiting = threading.Thread(target=lambda: results.append(text_of(client, "slow", seconds=0.3)))
        text_of(client, "echo", text="x")
        waiting.start()
        with pytest.raises(McpProtocolError, match="the answer to tools/call cannot be read: it is longer than 50000"):
            text_of(client, "big", size=60_000)
        waiting.join(5)
        assert results == ["slow"]
        assert len(text_of(client, "big", size=49_000)) == 49_000


def test_what_is_posted_to_a_server_that_does_not_read_is_bounded() -> None:
    reading, writing = os.pipe()
    woken: list[int] = []
    outlet = PolledOutlet(Descriptor(writing), lambda: woken.append(1))
    piece = b"x" * 1_000_000
    count = 0
    while outlet.post(piece):
        count += 1
    assert 8 <= count <= MAX_POSTED_BYTES // len(piece) + 2
    assert woken
    assert not outlet.write(Piece(b"y"), time.monotonic() + 0.05, lambda: False)
    got = bytearray()
    while len(got) < count * len(piece):
        got += os.read(reading, 65536)
        outlet.go_on()
    assert got == piece * count
    assert outlet.left_over() is None
    assert outlet.write(Piece(b"z"), time.monotonic() + 5, lambda: False)
    assert os.read(reading, 10) == b"z"
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        outlet.write(Piece(piece), None, lambda: False)
    assert not outlet.post(b"x")


def test_no_byte_is_written_twice_when_ctrl_c_comes_between_writing_and_counting() -> None:
    reading, writing = os.pipe()
    piece = Piece(b"abc")
    piece.write_to(writing)
    assert piece.is_done
    piece.write_to(writing)
    assert os.read(reading, 10) == b"abc"
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        Piece(b"x").write_to(writing)
    os.close(writing)


# --------------------------------------------------------------------------- rubbish


@pytest.mark.parametrize("ending", ["crlf", "glued", "batch", "bom"])
def test_rubbish_around_messages_does_no_harm(ending: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "mantyx_sync.mcp")
    with client_of("banner") as client:
        assert text_of(client, "noise", ending=ending) == "a\u2028b\u2029c\u0085d"
        assert text_of(client, "echo", text="x") == "x"
    assert "Listening" not in caplog.text  # what a server prints may be part of a result
    assert "on its stdout is no message" in caplog.text


def test_an_answer_that_is_not_utf_8_fails_its_call_at_once(client: McpClient) -> None:
    began_at = time.monotonic()
    with pytest.raises(McpProtocolError, match=r"the answer to tools/call cannot be read: its byte \d+ is not UTF-8"):
        text_of(client, "garbled")
    assert time.monotonic() - began_at < 1.0
    assert text_of(client, "echo", text="x") == "x"


def test_an_error_of_the_server_is_returned_to_the_client(client: McpClient) -> None:
    with pytest.raises(McpRequestError) as caught:
        client.call_tool("no such tool")
    assert caught.value.rpc_code == -32602


# --------------------------------------------------------------------------- standard error


def test_standard_error_is_drained_and_its_end_is_kept() -> None:
    with client_of() as client:
        assert text_of(client, "flood", size=3_000_000) == "flooded"
        with pytest.raises(McpConnectionError) as caught:
            text_of(client, "die")
    tail = caught.value.stderr_tail
    assert tail.endswith("the last line\nabout to die\nTraceback: out of cheese\n")
    assert len(tail) <= 2 * KEPT_BYTES
    assert len(str(caught.value)) < 1000
    assert str(caught.value).endswith("the last line / about to die / Traceback: out of cheese")


def test_standard_error_may_go_to_ours(capfd: pytest.CaptureFixture[str]) -> None:
    threads = set(threading.enumerate())
    with client_of(stderr="inherit") as client:
        text_of(client, "flood", size=10)
        assert not [thread for thread in set(threading.enumerate()) - threads if "stderr" in thread.name]
        with pytest.raises(McpConnectionError) as caught:
            text_of(client, "die")
    assert caught.value.stderr_tail == ""
    assert str(caught.value).endswith("before it answered tools/call")
    assert capfd.readouterr().err.startswith("xxxxxxxxxx\nthe last line\nabout to die\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("\n \n", ""),
        ("one\n\n  two\tthree \r\nfour", "one / two three / four"),
        ("\x1b[31mred\x1b[0m \x00", "[31mred [0m"),
        ("a" * 700, "…" + "a" * 599),
    ],
)
def test_the_last_words_of_a_server_fit_into_a_sentence(text: str, shown: str) -> None:
    assert last_lines(text) == shown


# --------------------------------------------------------------------------- many at once, and what a server asks


def test_many_threads_get_their_own_answers(client: McpClient) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(20):
            text = f"{number}.{turn}"
            if text_of(client, "echo", text=text) != text:
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not wrong
    assert json.loads(text_of(client, "pids")) == [json.loads(text_of(client, "pids"))[0]]  # one process for all


@BOTH
@pytest.mark.parametrize("same_id", [False, True])
def test_a_server_may_ask_in_the_middle_of_a_call(pipes: str, same_id: bool) -> None:
    methods = ["ping", "roots/list", "sampling/createMessage", "elicitation/create", "x/unheard-of"]
    with client_of() as client:
        answers = json.loads(text_of(client, "ask", methods=methods, same_id=same_id))
    refused = {"code": -32601, "message": "Method not found"}
    assert answers == [{}, refused, refused, refused, refused]


def test_a_flood_of_progress_arrives_whole_and_in_order(client: McpClient) -> None:
    heard: list[float] = []
    result = client.call_tool("progress", {"count": 10_000}, on_progress=lambda p: heard.append(p.progress), timeout=20)
    assert result.text == "done"
    assert heard == list(range(10_000))


def test_a_callback_may_call_another_tool_of_the_same_server_and_may_raise(client: McpClient) -> None:
    found: list[str] = []

    def callback(progress: Any) -> None:
        found.append(text_of(client, "echo", text=str(progress.progress)))
        raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError):
        assert client.call_tool("progress", {"count": 5}, on_progress=callback, timeout=20).text == "done"
    assert found
    assert text_of(client, "echo", text="x") == "x"


def test_a_client_is_used_again_after_ctrl_c(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of("threads", f"log={log}") as client:
        text_of(client, "echo", text="x")
        main = threading.main_thread()
        timer = threading.Timer(0.2, lambda: signal.pthread_kill(main.ident or 0, signal.SIGINT))
        timer.start()
        began_at = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("never")
        assert time.monotonic() - began_at < 1.2
        timer.join()
        wait_until(lambda: bool(seen(log, "notifications/cancelled")), "the server should be told")
        assert seen(log, "notifications/cancelled")[0]["params"]["reason"] == "cancelled by the caller"
        assert text_of(client, "echo", text="x") == "x"
    assert len(seen(log, "initialize")) == 1
