"""The socket loop of the embedded servers: one thread serves all connections and feeds all event streams.

A stream that waits costs no thread, a client that goes away is noticed at once, and one write carries all
events that came since the last one. Requests are handled on the loop's thread, so handlers must not block.
"""

from __future__ import annotations

import collections
import contextlib
import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from typing import Callable, Optional, Union

from mantyx_sync.local.answers import Answer
from mantyx_sync.local.connection import Connection
from mantyx_sync.local.faults import Faults
from mantyx_sync.local.frames import FrameLog
from mantyx_sync.local.http import Request, Response

__all__ = ["SocketLoop", "Timer"]

_log = logging.getLogger(__name__)

Deferred = Callable[[], None]


class Timer:
    """A function that the loop is to call later; see `SocketLoop.call_at`."""

    def __init__(self, function: Deferred) -> None:
        self.function: Optional[Deferred] = function

    def cancel(self) -> None:
        """Do not call the function. Any thread may say so; it changes nothing if the function was called."""
        self.function = None


class SocketLoop:
    """Owns the listening socket, every connection and the thread that serves them.

    Args:
        handler: Answers one request; called on the loop's thread.
        faults: What is to go wrong.
        run_blocking: Runs a function on another thread, for faults that wait.
        heartbeat: Seconds between comments on a stream without events; None sends none.
        on_request: Called with every request before it is handled.
        route_of: Names the route of a request, for faults.
        refuse: Answers what cannot be read, or what the handler failed at, by status and sentence.
        first_headers: What the head of every answer begins with.
        clock: The time in seconds that `call_at` goes by.
    """

    def __init__(
        self,
        handler: Callable[[Request], Answer],
        faults: Faults,
        *,
        run_blocking: Callable[[Callable[[], None]], None],
        heartbeat: float | None,
        on_request: Callable[[Request], None],
        route_of: Callable[[Request], str],
        refuse: Callable[[int, str], Response],
        first_headers: Callable[[], list[tuple[str, str]]] = list,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handler = handler
        self.faults = faults
        self.run_blocking = run_blocking
        self.heartbeat = heartbeat
        self.on_request = on_request
        self.route_of = route_of
        self.refuse = refuse
        self.first_headers = first_headers
        self.clock = clock
        self.stopping = threading.Event()
        self.streams: dict[str, set[Connection]] = {}
        self.connections: set[Connection] = set()
        self.selector: selectors.BaseSelector
        self._inbox: collections.deque[Union[FrameLog, Deferred]] = collections.deque()
        self._timers: list[tuple[float, int, Timer]] = []  # a heap, of the loop's thread alone
        self._timer_numbers = itertools.count()
        self._asleep = False

    # ------------------------------------------------------------- lifetime

    def start(self, host: str, port: int) -> int:
        """Listen and start the thread; returns the port. Raises `OSError` if the address cannot be had."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError as error:
                raise OSError(error.errno, f"{error.strerror}: {host} port {port} (port 0 takes a free one)") from error
            listener.listen(1024)
            listener.setblocking(False)
            self._wake_r, self._wake_w = socket.socketpair()
        except BaseException:
            listener.close()
            raise
        self._wake_r.setblocking(False)
        self._wake_w.setblocking(False)
        self._listener = listener
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        self.selector.register(self._wake_r, selectors.EVENT_READ, self._drain_wakes)
        self.stopping.clear()
        self._inbox.clear()  # what an earlier life left behind
        self._timers.clear()
        # Owner: this object. `stop` wakes it through the socket pair and joins it; a daemon, since nothing
        # is lost when a program ends without stopping its server.
        self._thread = threading.Thread(target=self._main, name="mantyx-local-loop", daemon=True)
        self._thread.start()
        return int(listener.getsockname()[1])

    def stop(self, timeout: float = 10.0) -> None:
        """Close every connection and end the thread."""
        self.stopping.set()
        self._wake()
        self._thread.join(timeout)
        if self._thread.is_alive():  # pragma: no cover - a handler that blocks is a bug of ours
            _log.error("the socket loop did not end within %s s", timeout)
            return
        self._wake_w.close()

    def run_changed(self, log: FrameLog) -> None:
        """Tell the loop, from any thread, that a log has grown."""
        if not log.announced:
            log.announced = True
            self.post(log)

    def post(self, item: Union[FrameLog, Deferred]) -> None:
        """Hand a log or a function to the loop's thread."""
        self._inbox.append(item)
        # The loop sets `_asleep` before it looks at the inbox a last time, so that either it sees this item
        # or we see that it sleeps.
        if self._asleep:
            self._asleep = False
            self._wake()

    def call_at(self, when: float, function: Deferred) -> Timer:
        """Have the loop's thread call a function when its clock shows `when`. Any thread may ask for it."""
        timer = Timer(function)
        entry = (when, next(self._timer_numbers), timer)
        self.post(lambda: heapq.heappush(self._timers, entry))
        return timer

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is being woken anyway; closed: it has ended
            self._wake_w.send(b"\0")

    # --------------------------------------------------------------- thread

    def _main(self) -> None:
        try:
            beat = self.heartbeat
            next_beat = time.monotonic() + (beat or 0.0) / 2
            while not self.stopping.is_set():
                self._asleep = True
                ready = self.selector.select(self._patience(next_beat if beat and self.streams else None))
                self._asleep = False
                for key, mask in ready:
                    key.data(mask)
                self._work_inbox()
                if self._timers:
                    self._call_timers()
                if beat and self.streams and time.monotonic() >= next_beat:
                    self._beat(time.monotonic() - beat)
                    next_beat = time.monotonic() + beat / 2
        except Exception:  # pragma: no cover - a bug of ours: better loud than a server that hangs
            _log.exception("the socket loop failed")
        finally:
            self.selector.unregister(self._listener)
            self._listener.close()
            for connection in list(self.connections):
                connection.close()
            self.selector.close()
            self._wake_r.close()

    def _patience(self, next_beat: float | None) -> float | None:
        """How long the loop may sleep for want of anything to read."""
        if self._inbox:
            return 0.0
        waits = [] if next_beat is None else [next_beat - time.monotonic()]
        if self._timers:
            waits.append(self._timers[0][0] - self.clock())
        return max(0.0, min(waits)) if waits else None

    def _call_timers(self) -> None:
        now = self.clock()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            function, timer.function = timer.function, None
            if function is not None:
                try:
                    function()
                except Exception:  # pragma: no cover - a bug of ours, which must not end the loop
                    _log.exception("a timer of the embedded server failed")

    def _accept(self, _mask: int) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:  # nobody waits any more, or the one who waited has left
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Connection(self, sock, str(address[0]))

    def _drain_wakes(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_r.recv(4096)

    def _work_inbox(self) -> None:
        for _ in range(len(self._inbox)):
            item = self._inbox.popleft()
            if not isinstance(item, FrameLog):
                item()
                continue
            readers = self.streams.get(item.id)
            # Without readers the log stays marked as announced: the next one to come clears the mark.
            if readers:
                item.announced = False
                for connection in tuple(readers):
                    try:
                        connection.pump()
                    except Exception:
                        connection.fail()

    def _beat(self, before: float) -> None:
        for readers in tuple(self.streams.values()):
            for connection in tuple(readers):
                connection.beat(before)
