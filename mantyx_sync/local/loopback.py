"""What the embedded servers have in common: their life, their address, their faults and what they noted."""

from __future__ import annotations

import abc
import atexit
import collections
import contextlib
import dataclasses
import functools
import ipaddress
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Iterable, Optional, TypeVar, Union

from mantyx_sync.local.answers import Answer
from mantyx_sync.local.faults import Effect, Fault, Faults
from mantyx_sync.local.http import Request, Response
from mantyx_sync.local.loop import SocketLoop
from mantyx_sync.local.workers import Workers

if TYPE_CHECKING:
    Self = TypeVar("Self", bound="LoopbackServer")

__all__ = ["STOP_TIMEOUT_S", "LoopbackServer"]

MAX_KEPT_REQUESTS = 4096
MAX_KEPT_BODY_BYTES = 65536
# How long `stop` waits for the threads; only a model that ignores its request's events can use it up.
STOP_TIMEOUT_S = 10.0


class LoopbackServer(abc.ABC):
    """An HTTP server on a loopback address; a subclass answers its requests.

    Args:
        host: A loopback address.
        port: The port; 0 takes a free one.
        faults: Faults from the start; more can be added to `faults` later.
        heartbeat: Seconds between comments on a stream that has nothing to say; None sends none.
        clock: The time in seconds that timers of the socket loop go by.

    Raises:
        ValueError: `host` is not a loopback address.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        faults: Iterable[Union[Fault, Effect]] | None,
        heartbeat: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not _is_loopback(host):
            raise ValueError(f"host must be a loopback address such as 127.0.0.1, got {host!r}")
        self.faults = Faults(faults or ())
        self.requests: collections.deque[Request] = collections.deque(maxlen=MAX_KEPT_REQUESTS)
        """The newest requests, oldest first, each with its `route`; of a large body the beginning."""
        self._host = host
        self._wanted_port = port
        self._port: Optional[int] = None
        self._workers = Workers()
        self._life = threading.Lock()
        self._loop = SocketLoop(
            self._handle,
            self.faults,
            run_blocking=self._workers.run,
            heartbeat=heartbeat,
            on_request=self._note,
            route_of=self._route_of,
            refuse=self._refuse,
            first_headers=self._first_headers,
            clock=clock,
        )
        self._at_exit: Optional[Callable[[], None]] = None

    # ------------------------------------------------- for subclasses to fill

    @abc.abstractmethod
    def _handle(self, request: Request) -> Answer:
        """Answer a request, on the socket loop's thread and without blocking."""

    @abc.abstractmethod
    def _route_of(self, request: Request) -> str:
        """Name the route of a request, the empty string for none."""

    @abc.abstractmethod
    def _refuse(self, status: int, message: str) -> Response:
        """Answer what cannot be read (4xx), or what `_handle` failed at (500)."""

    def _first_headers(self) -> list[tuple[str, str]]:
        """Return what the head of every answer begins with."""
        return []

    def _loop_ended(self) -> None:  # noqa: B027 - a hook: not every server has something left
        """See to what is left when the last connection is closed; the workers still run."""

    # ------------------------------------------------------------- lifetime

    def start(self: Self) -> Self:
        """Listen and serve. Returns the server; starting it twice changes nothing.

        Raises:
            OSError: The port cannot be had.
        """
        with self._life:
            if self._port is None:
                self._workers.open()
                self._port = self._loop.start(self._host, self._wanted_port)
                self._at_exit = functools.partial(_stop_at_exit, weakref.ref(self))
                atexit.register(self._at_exit)
        return self

    def stop(self) -> None:
        """Close everything: streams break off, what is in progress fails. What was logged can still be read."""
        with self._life:
            if self._port is None:
                return
            if self._at_exit is not None:
                atexit.unregister(self._at_exit)
                self._at_exit = None
            self._loop.stop(STOP_TIMEOUT_S)
            self._loop_ended()
            self._workers.close(STOP_TIMEOUT_S)
            self._port = None

    def __enter__(self: Self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------------------------------------ for clients

    @property
    def port(self) -> int:
        """The port. Raises `RuntimeError` while the server is not started."""
        if self._port is None:
            raise RuntimeError("the server is not started; call start() or use it in a with block")
        return self._port

    @property
    def url(self) -> str:
        """The base URL for a client, such as `http://127.0.0.1:40123`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    # -------------------------------------------------------------- for tests

    @property
    def open_streams(self) -> int:
        """How many event streams clients have open."""
        return sum(len(readers) for readers in tuple(self._loop.streams.values()))

    @property
    def open_connections(self) -> int:
        """How many connections clients have open, idle ones included."""
        return len(self._loop.connections)

    def _note(self, request: Request) -> None:
        if len(request.body) > MAX_KEPT_BODY_BYTES:
            request = dataclasses.replace(request, body=request.body[:MAX_KEPT_BODY_BYTES])
        self.requests.append(request)


def _stop_at_exit(reference: weakref.ref[LoopbackServer]) -> None:
    server = reference()
    if server is not None:
        server.stop()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
