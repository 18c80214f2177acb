"""The stream that reconnects: where it goes on, when it waits, when it gives up, and that it can always be ended."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync.errors import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxBadRequestError,
    MantyxForbiddenError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxProtocolError,
)
from mantyx_sync.transport.body import Body, Release
from mantyx_sync.transport.http import HttpTransport
from mantyx_sync.transport.retry import Backoff, Reconnect
from mantyx_sync.transport.sse import parse_frame
from mantyx_sync.transport.stream import EventStream, StreamLost
from tests.waiting import wait_until

from .wire import (
    DEADLINE_S,
    Peer,
    Script,
    WireServer,
    chunk,
    head,
    refuse,
    silent_port,
    stream_head,
    transport,
    unused_port,
)

pytestmark = pytest.mark.usefixtures("no_leaks")


class Reader:
    """Items are the data of frames, told apart by their id."""

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self.last_id: str | None = None
        self.seen: set[str] = set()

    def read(self, frames: list[str]) -> list[str]:
        fresh = []
        for frame in map(parse_frame, frames):
            self.retry_ms = frame.retry_ms if frame.retry_ms is not None else self.retry_ms
            self.last_id = frame.id if frame.id is not None else self.last_id
            if frame.data and frame.id not in self.seen:
                self.seen.add(frame.id or "")
                fresh.append(frame.data)
        return fresh

    def resume_headers(self) -> dict[str, str]:
        return {"Last-Event-ID": self.last_id} if self.last_id else {}


def make(
    client: HttpTransport,
    *,
    idle: float = 5.0,
    connect: float = 5.0,
    give_up: float = 30.0,
    base: float = 0.01,
    cap: float = 0.2,
    settled: float | None = None,
    max_frame_bytes: int = 1 << 20,
    **details: Any,
) -> EventStream[str]:
    def dial(headers: dict[str, str], release: Release) -> Body:
        return client.open_stream(
            client.base.join("/events"), headers=headers, connect_timeout=connect, idle_timeout=idle, release=release
        )

    reconnect = Reconnect(give_up, time.monotonic(), Backoff(base=base, cap=cap))
    if settled is not None:
        reconnect.settled_after = settled
    return EventStream(dial, Reader(), reconnect, max_frame_bytes=max_frame_bytes, **details)


@contextlib.contextmanager
def streaming(*scripts: Script, **details: Any) -> Iterator[tuple[WireServer, EventStream[str]]]:
    with WireServer(*scripts) as server:
        client = transport(server.url)
        try:
            yield server, make(client, **details)
        finally:
            client.close()


def take(stream: EventStream[str], last: str) -> list[str]:
    """Read until the item `last`, then leave."""
    items: list[str] = []
    with contextlib.closing(iter(stream)) as batches:  # type: ignore[type-var]  # a generator
        for batch in batches:
            items += batch
            if last in items:
                return items
    raise AssertionError(f"the stream ended at {items}")


def event(number: int) -> bytes:
    return f"id: {number}\ndata: e{number}\n\n".encode()


def events(*numbers: int, end: str = "finish", tail: bytes = b"") -> Script:
    """Send the events behind `Last-Event-ID`, then `tail`, then end: by the last chunk, FIN, RST, or not at all."""

    def script(peer: Peer) -> None:
        last = int(peer.request().headers.get("last-event-id", "0"))
        peer.send(stream_head(), *(chunk(event(number)) for number in numbers if number > last), tail)
        if end == "properly":
            peer.send(b"0\r\n\r\n")
        elif end == "reset":
            peer.reset()
        elif end == "stay":
            peer.stay()

    return script


def resumed_from(server: WireServer) -> list[str | None]:
    return [request.headers.get("last-event-id") for request in server.requests]


# --- going on


@pytest.mark.parametrize("end", ["properly", "finish", "reset"])
def test_it_goes_on_where_it_broke_off(end: str) -> None:
    log = (1, 2, 3, 4)
    with streaming(events(*log[:2], end=end), events(*log[:3], end=end), events(*log, end="stay")) as (server, stream):
        assert take(stream, "e4") == ["e1", "e2", "e3", "e4"]
        if end != "reset":  # which may overtake what was sent before
            assert resumed_from(server) == [None, "2", "3"]


@pytest.mark.parametrize(
    ("tail", "end"),
    [
        (chunk(b"id: 9\nda"), "properly"),
        (chunk(b"id: 9\ndata: e9\n"), "properly"),
        (chunk(b"id: 9\ndata: e9\n"), "finish"),
        (chunk(b"id: 9\ndata: e9\n"), "reset"),
        (b"8\r\nid: 9\n", "finish"),
        (b"8", "finish"),
        (b"not a chunk\r\n", "stay"),
    ],
)
def test_half_an_event_is_not_an_event(tail: bytes, end: str) -> None:
    with streaming(events(1, end=end, tail=tail), events(1, 2, end="stay")) as (server, stream):
        assert take(stream, "e2") == ["e1", "e2"]
        assert "9" not in resumed_from(server)


def test_a_quiet_stream_tells_so_in_time_and_goes_on_where_it_is() -> None:
    go = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(event(1)))
        peer.wait(go)
        peer.send(chunk(b": hb\n\n"), chunk(event(2)))
        peer.stay()

    with streaming(script) as (_, stream):
        stream.patience = 0.02
        found: list[list[str]] = []
        with contextlib.closing(iter(stream)) as batches:  # type: ignore[type-var]  # a generator
            for batch in batches:
                found.append(batch)
                if found[-2:] == [[], []]:
                    go.set()
                if batch == ["e2"]:
                    break
        assert [item for batch in found for item in batch] == ["e1", "e2"]
        assert found[0] == ["e1"]


def test_the_wait_before_reconnecting_is_told_in_pieces_as_well() -> None:
    with streaming(events(1, tail=chunk(b"retry: 200\n\n")), events(1, 2, end="stay")) as (_, stream):
        stream.patience = 0.01
        found: list[list[str]] = []
        with contextlib.closing(iter(stream)) as batches:  # type: ignore[type-var]  # a generator
            for batch in batches:
                found.append(batch)
                if batch == ["e2"]:
                    break
        assert [item for batch in found for item in batch] == ["e1", "e2"]
        assert found.count([]) >= 3


def test_silence_breaks_a_stream_off_that_is_looked_at_in_small_pieces() -> None:
    with streaming(events(1, end="stay"), events(1, 2, end="stay"), idle=0.2) as (server, stream):
        stream.patience = 0.03
        assert take(stream, "e2") == ["e1", "e2"]
        assert resumed_from(server) == [None, "1"]


def test_what_is_sent_again_comes_out_once() -> None:
    def again(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), *(chunk(event(number)) for number in (2, 3, 4)))
        peer.stay()

    with streaming(events(1, 2, 3), again) as (_, stream):
        assert take(stream, "e4") == ["e1", "e2", "e3", "e4"]


def test_an_id_without_data_is_a_place_to_go_on_from() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(b"id: 7\n\n"))

    with streaming(script, events(8, end="stay")) as (server, stream):
        assert take(stream, "e8") == ["e8"]
        assert resumed_from(server) == [None, "7"]


def test_every_cut_of_an_answer_leads_to_the_same_events() -> None:
    whole = stream_head() + chunk(event(1)) + chunk(b": hb\n\n") + chunk(event(2)) + b"0\r\n\r\n"

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(whole[: peer.number] if peer.number < len(whole) else stream_head() + chunk(event(3)))

    with streaming(script, give_up=60, cap=0.001) as (server, stream):
        assert take(stream, "e3") == ["e1", "e2", "e3"]
        assert server.connections == len(whole) + 1


def test_the_batch_of_one_read_comes_out_together() -> None:
    with streaming(events(1, 2, 3, end="stay")) as (_, stream), contextlib.closing(iter(stream)) as batches:  # type: ignore[type-var]
        assert next(batches) == ["e1", "e2", "e3"]


def test_leaving_at_the_last_event_closes_the_connection_although_the_body_stays_open() -> None:
    left = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(event(1)))
        peer.stay()
        left.set()

    with streaming(script) as (_, stream):
        started = time.monotonic()
        assert take(stream, "e1") == ["e1"]
        assert left.wait(2)
        assert time.monotonic() - started < 1.5


# --- silence


def test_silence_is_noticed_and_the_stream_goes_on() -> None:
    with streaming(events(1, end="stay"), events(2, end="stay"), idle=0.2) as (server, stream):
        started = time.monotonic()
        assert take(stream, "e2") == ["e1", "e2"]
        assert 0.15 < time.monotonic() - started < 2
        assert resumed_from(server) == [None, "1"]


def test_a_heartbeat_is_a_sign_of_life() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head())
        for _ in range(6):
            threading.Event().wait(0.25)  # the pace of a server
            peer.send(chunk(b": hb\n\n"))
        peer.send(chunk(event(1)))
        peer.stay()

    with streaming(script, idle=1.0) as (server, stream):
        assert take(stream, "e1") == ["e1"]
        assert server.connections == 1


def test_a_server_that_stays_silent_is_given_up_with_the_reason() -> None:
    with streaming(events(end="stay"), idle=0.1, give_up=0.3) as (server, stream):
        with pytest.raises(StreamLost) as caught:
            list(stream)
        assert isinstance(caught.value.error, MantyxNetworkError)
        assert str(caught.value.error) == "no byte arrived for 0.1 s"
        assert not caught.value.gone
        assert server.connections >= 2


def test_a_quiet_stream_with_heartbeats_that_breaks_late_is_tried_again() -> None:
    def quiet(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head())
        for _ in range(4):
            threading.Event().wait(0.1)
            peer.send(chunk(b": hb\n\n"))

    with streaming(quiet, quiet, quiet, events(1, end="stay"), give_up=0.5, settled=0.2) as (server, stream):
        assert take(stream, "e1") == ["e1"]
        assert server.connections == 4


# --- waiting


def connects_within(seconds: float, script: Script, **details: Any) -> int:
    with streaming(script, give_up=seconds, **details) as (server, stream):
        with pytest.raises(StreamLost):
            list(stream)
        return server.connections


def test_a_server_that_accepts_and_closes_is_not_hammered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.transport.stream.random.random", lambda: 1.0)
    assert connects_within(1.0, lambda peer: None, base=0.05) in range(6, 11)  # 0.05, 0.1, 0.2, 0.2, …


def test_an_event_on_each_connection_does_not_make_it_hammer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.transport.stream.random.random", lambda: 1.0)
    stop = threading.Event()

    def script(peer: Peer) -> None:
        events(peer.number, end="properly")(peer)

    with streaming(script, base=0.05) as (server, stream):
        timer = threading.Timer(1.0, stop.set)
        timer.start()
        for _ in stream:
            if stop.is_set():
                break
        assert server.connections in range(5, 10)
        timer.join()


def test_nobody_listening_is_given_up_with_the_cause() -> None:
    client = transport(f"http://127.0.0.1:{unused_port()}")
    started = time.monotonic()
    with pytest.raises(StreamLost, match="ConnectionRefusedError") as caught:
        list(make(client, give_up=0.3))
    assert 0.2 < time.monotonic() - started < 2
    assert isinstance(caught.value.error, MantyxNetworkError)
    assert isinstance(caught.value.error.__cause__, MantyxNetworkError)


@pytest.mark.parametrize(
    ("asked", "shortest", "longest"),
    [(b"0", 0.1, 1.0), (b"300", 0.3, 1.2), (b"abc", 0.0, 0.3), (b"-1", 0.0, 0.3), (b"1e9", 0.0, 0.3)],
)
def test_the_retry_field_sets_the_shortest_wait(asked: bytes, shortest: float, longest: float) -> None:
    closed_at: list[float] = []

    def first(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(b"retry: " + asked + b"\n\n"), b"0\r\n\r\n")
        closed_at.append(time.monotonic())

    with streaming(first, events(1, end="stay")) as (_, stream):
        take(stream, "e1")
        assert shortest <= time.monotonic() - closed_at[0] < longest


def test_a_huge_retry_field_is_cut() -> None:
    def first(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(b"retry: 99999999999\n\n"), b"0\r\n\r\n")

    with streaming(first, give_up=0.3) as (server, stream):
        with pytest.raises(StreamLost):
            list(stream)
        assert server.connections >= 2


def test_retry_after_is_waited_for() -> None:
    with streaming(refuse(503, retry_after="0.3"), events(1, end="stay")) as (_, stream):
        started = time.monotonic()
        assert take(stream, "e1") == ["e1"]
        assert time.monotonic() - started >= 0.3


def test_time_does_not_count_while_we_are_busy_ourselves() -> None:
    busy = threading.Event()
    busy.set()
    with streaming(lambda peer: None, give_up=0.2, is_busy=busy.is_set) as (_, stream):
        timer = threading.Timer(0.8, busy.clear)
        timer.start()
        started = time.monotonic()
        with pytest.raises(StreamLost):
            list(stream)
        assert time.monotonic() - started > 0.5  # and not 0.2
        timer.join()


# --- answers that change nothing, and those that may


@pytest.mark.parametrize(
    ("status", "kind", "gone"),
    [
        (204, MantyxProtocolError, True),
        (301, MantyxProtocolError, False),
        (400, MantyxBadRequestError, False),
        (401, MantyxAuthError, False),
        (403, MantyxForbiddenError, False),
        (404, MantyxNotFoundError, True),
        (410, MantyxAPIError, True),
    ],
)
def test_statuses_that_will_not_change_end_the_stream(status: int, kind: type[Exception], gone: bool) -> None:
    with streaming(events(1), refuse(status, b'{"error":{"code":"bad_key"}}')) as (server, stream):
        items: list[str] = []
        with pytest.raises(StreamLost) as caught:
            items.extend(item for batch in stream for item in batch)
        assert isinstance(caught.value.error, kind)
        assert caught.value.error.status == status
        assert caught.value.gone is gone
        assert items == ["e1"]
        assert server.connections == 2


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_statuses_that_may_pass_are_tried_again(status: int) -> None:
    with streaming(refuse(status, b"<html>"), refuse(status), events(1, end="stay")) as (_, stream):
        assert take(stream, "e1") == ["e1"]


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
def test_another_content_type_ends_the_stream_at_once(kind: str) -> None:
    with streaming(refuse(200, b"<html>log in</html>", content_type=kind)) as (server, stream):
        with pytest.raises(StreamLost, match=f"content type '{kind}'") as caught:
            list(stream)
        assert isinstance(caught.value.error, MantyxProtocolError)
        assert server.connections == 1


def test_an_event_without_end_ends_the_stream() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(b"data: " + b"x" * 5000))
        peer.stay()

    with streaming(script, max_frame_bytes=4096) as (server, stream):
        with pytest.raises(StreamLost, match="4096 bytes") as caught:
            list(stream)
        assert isinstance(caught.value.error, MantyxProtocolError)
        assert server.connections == 1


def test_a_run_that_is_over_ends_the_stream_after_connections_that_brought_nothing() -> None:
    asked = []

    def is_over() -> bool:
        asked.append(1)
        return len(asked) == 2

    with streaming(events(1), events(end="properly"), is_over=is_over) as (server, stream):
        assert list(stream) == [["e1"]]
        assert server.connections == 4  # one with an event, then one to be sure, then two that asked


def test_a_reader_that_cannot_go_on_ends_the_stream() -> None:
    class Refusing(Reader):
        def read(self, frames: list[str]) -> list[str]:
            raise MantyxProtocolError("event 1 lacks its text")

    with streaming(events(1, end="stay")) as (server, stream):
        stream._reader = Refusing()
        with pytest.raises(StreamLost, match="lacks its text"):
            list(stream)
        wait_until(lambda: server.open_connections == 0, "the connection stays open")


def test_a_resume_header_that_cannot_be_sent_ends_the_stream_with_our_error() -> None:
    with streaming(events(1, end="stay")) as (_, stream):
        stream._reader.last_id = "é\u2028"  # type: ignore[attr-defined]
        with pytest.raises(StreamLost) as caught:
            list(make_quick(stream))
        assert isinstance(caught.value.error, MantyxNetworkError)


def make_quick(stream: EventStream[str]) -> EventStream[str]:
    stream._reconnect = Reconnect(0.0, time.monotonic())
    return stream


# --- release


def released(stream: EventStream[str], when: Callable[[], object]) -> list[str]:
    """Iterate on a thread, release when `when()` is true, and return the items; the thread must end at once."""
    items: list[str] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for batch in stream:
                items.extend(batch)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(when, "the stream never got that far")
    started = time.monotonic()
    stream.release()
    assert time.monotonic() - started < 0.2
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert time.monotonic() - started < 1.0, "release() did not wake the stream"
    assert not failures
    return items


def test_release_while_reading() -> None:
    got = threading.Event()

    class Telling(Reader):
        def read(self, frames: list[str]) -> list[str]:
            got.set()
            return super().read(frames)

    with streaming(events(1, end="stay")) as (_, stream):
        stream._reader = Telling()
        assert released(stream, got.is_set) == ["e1"]


def test_release_while_waiting_for_headers() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.stay()

    with streaming(script) as (server, stream):
        assert released(stream, lambda: server.requests) == []


def test_release_while_waiting_to_reconnect() -> None:
    with streaming(refuse(503, retry_after="30"), give_up=100) as (server, stream):
        assert released(stream, lambda: server.requests and server.open_connections == 0) == []
        assert server.connections == 1


def test_release_while_a_refusal_is_read() -> None:
    sent = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head(500), b"<html>")
        sent.set()
        peer.stay()

    with streaming(script) as (_, stream):
        assert released(stream, sent.is_set) == []


def test_release_before_the_first_connection() -> None:
    with streaming(events(1)) as (server, stream):
        stream.release()
        assert list(stream) == []
        assert server.connections == 0


def test_release_while_connecting_ends_by_the_connect_timeout() -> None:
    with silent_port() as port:
        client = transport(f"http://127.0.0.1:{port}")
        stream = make(client, connect=0.3)
        timer = threading.Timer(0.05, stream.release)
        timer.start()
        started = time.monotonic()
        assert list(stream) == []
        assert time.monotonic() - started < 1.5
        timer.join()


def test_release_between_two_batches() -> None:
    with streaming(events(1, end="stay")) as (_, stream):
        items = []
        for batch in stream:
            items.append(batch)
            stream.release()
        assert items == [["e1"]]


def test_a_released_stream_stays_released() -> None:
    with streaming(events(1, end="stay")) as (server, stream):
        take(stream, "e1")
        stream.release()
        stream.release()
        assert list(stream) == []
        assert server.connections == 1


def test_streams_that_are_left_early_leave_nothing_behind() -> None:
    with WireServer(events(1, end="stay")) as server:
        client = transport(server.url)
        for _ in range(50):
            assert take(make(client), "e1") == ["e1"]
        wait_until(lambda: server.open_connections == 0, "connections stay open")
        client.close()
