"""The body of a streamed response, handed on as it arrives and released from any thread.

`requests` and urllib3 hold bytes back on bodies that are not chunked and cost a few reads per chunk on those that
are. So the buffered socket file below them is read here, the same way for urllib3 1.26 and 2; where it cannot be
reached (an adapter that is not urllib3's) urllib3's own reading is the fallback.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
import zlib
from http.client import HTTPException
from ssl import SSLWantReadError
from typing import TYPE_CHECKING, Any, Callable, Optional

from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.wait import wait_for_read

from .chunked import BadChunk, ChunkedDecoder

if TYPE_CHECKING:
    from .route import Received

__all__ = ["Body", "BodyBroken", "BodyIdle", "Release", "socket_of"]

READ_BYTES = 64 * 1024
MAX_PIECE_BYTES = 1024 * 1024
"""What is decompressed at a time: what was read may expand a thousandfold."""
LONGEST_WAIT_S = 86400.0  # more than any time-out; the system's own waits take no time without end


class BodyBroken(Exception):
    """The connection broke, or the body does not follow its coding, before the body ended."""


class BodyIdle(Exception):
    """No byte arrived for the idle time-out."""


class Release:
    """Lets another thread end a read that blocks: on a connection being asked, or on the body of its answer.

    Thread-safe. Once called it stays called: a connection that shows up later is shut at once.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may call this object while its thread holds the lock
        self._connection: Any = None
        self._socket: Any = None
        self.called = False

    def __call__(self) -> None:
        """Shut the socket down, so that a read on it returns. Does not block."""
        with self._lock:
            self.called = True
            connection, sock = self._connection, self._socket
        _shut(sock if sock is not None else getattr(connection, "sock", None))

    def watch_connection(self, connection: Any) -> None:
        """Note the `http.client` connection that is about to send the request, or has just been opened for it."""
        with self._lock:
            self._connection = connection
            called = self.called
        if called:
            _shut(getattr(connection, "sock", None))

    def watch_socket(self, sock: Any) -> None:
        """Note the socket that the body arrives on."""
        with self._lock:
            self._socket = sock
            called = self.called
        if called:
            _shut(sock)

    def forget(self) -> None:
        """The exchange is over; its connection may serve others now."""
        with self._lock:
            self._connection = self._socket = None


def _shut(sock: Any) -> None:
    if sock is None:
        return
    # SSLSocket.shutdown would drop the TLS state that the blocked reader is using.
    shutdown = socket.socket.shutdown if isinstance(sock, socket.socket) else type(sock).shutdown
    with contextlib.suppress(OSError, ValueError):
        shutdown(sock, socket.SHUT_RDWR)


class Body:
    """Read a response body piece by piece. One thread reads; `release` may be called from any."""

    def __init__(self, received: Received, release: Release) -> None:
        self._received = received
        self._release = release
        sock = socket_of(received.raw)
        release.watch_socket(sock)
        self._idle_timeout = sock.gettimeout() if sock is not None else None
        self._read, self._is_source_at_end, encoded = _source(received.raw)
        # Told to wait for only where nothing but our reading is between the bytes and us.
        self._socket = sock if encoded and isinstance(sock, socket.socket) else None
        self._has_read = False
        self._quiet_since: float | None = None
        self._is_at_end = False
        encoding = received.headers.get("Content-Encoding", "").strip().lower() if encoded else ""
        self._inflate: _Inflate | None = None
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._inflate = _Inflate()
        elif encoding not in ("", "identity"):
            self.close()
            raise BodyBroken(f"the server sent Content-Encoding {encoding!r}, which was not asked for")

    def read(self) -> bytes:
        """Return the next bytes of the body; blocks until there are some. `b""` at its end.

        Raises:
            BodyIdle: No byte arrived for the read time-out of the request.
            BodyBroken: The connection broke, was released, or the coding is wrong.
        """
        while True:
            data = self._step()
            if data is not None:
                return data

    def poll(self, seconds: float) -> bytes | None:
        """Return what `read` returns, or `None` if that takes longer than `seconds`.

        It blocks as `read` does where the body is not read off a socket of ours.

        Raises:
            BodyIdle, BodyBroken: As from `read`.
        """
        until = time.monotonic() + seconds
        while self._wait(until):
            data = self._step()
            if data is not None:
                return data
        return None

    def _wait(self, until: float) -> bool:
        """Wait for bytes until then; tell whether a step will find some."""
        sock = self._socket
        if sock is None or self._is_source_at_end() or (self._inflate is not None and self._inflate.has_more):
            return True
        if not self._has_read and _peek(self._received.raw, sock):
            return True
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        idle_at = math.inf if self._idle_timeout is None else self._quiet_since + self._idle_timeout
        until = min(until, idle_at)
        try:
            # At least once: what came while nobody looked is no silence.
            while not _is_ready(self._received.raw, sock, min(max(0.0, until - now), LONGEST_WAIT_S)):
                now = time.monotonic()
                if now >= idle_at:
                    raise self._idle()
                if now >= until:
                    return False
        except (OSError, ValueError):
            pass  # closed or broken: the step says how
        return True

    def _step(self) -> bytes | None:
        """Read once; return what that makes of the body, `None` if nothing yet."""
        self._has_read, self._quiet_since = True, None
        if self._inflate is not None and self._inflate.has_more and not self._release.called:
            data = self._inflate(b"")
            if data:
                return data
        try:
            found = self._read()
        except (socket.timeout, ReadTimeoutError) as error:
            raise self._idle() from error
        except (OSError, ValueError, BadChunk, BodyBroken, HTTPError, HTTPException) as error:
            why = "the stream was released" if self._release.called else str(error) or type(error).__name__
            raise BodyBroken(why) from error
        if self._release.called:
            raise BodyBroken("the stream was released")
        if found == b"":
            self._is_at_end = True
        elif self._inflate is not None and found is not None:
            return self._inflate(found) or None
        return found

    def _idle(self) -> BodyIdle:
        limit = "the time-out" if self._idle_timeout is None else f"{self._idle_timeout:g} s"
        return BodyIdle(f"no byte arrived for {limit}")

    def close(self) -> None:
        """Let go of the connection. Call it from the reading thread; others call the `Release`.

        After the end of the body it serves the next request, otherwise it is closed.
        """
        self._release.forget()
        with contextlib.suppress(Exception):  # closing a broken connection has nothing to tell
            if self._is_at_end and not self._release.called and _hand_back(self._received.raw):
                return
            self._received.close()


class _Inflate:
    """gzip (of several members, too) and deflate with or without its zlib header, piece by piece."""

    def __init__(self) -> None:
        self._decoder: Any = None
        self._has_member = False
        self._rest = b""  # compressed bytes that are not taken in yet
        self.has_more = False
        """True if there may be more without another byte: call it with none."""

    def __call__(self, data: bytes) -> bytes:
        """Take in compressed bytes, and return what they add, at most `MAX_PIECE_BYTES` of it."""
        data, self._rest, self.has_more = self._rest + data, b"", False
        out: list[bytes] = []
        room = MAX_PIECE_BYTES
        try:
            while data or self._decoder is not None:
                if self._decoder is None:
                    if self._has_member:
                        data = data.lstrip(b"\0")  # padding between members
                    if len(data) < 2:
                        self._rest = data
                        break
                    self._decoder = zlib.decompressobj(_window_bits(data))
                piece = self._decoder.decompress(data, room)
                out.append(piece)
                room -= len(piece)
                if self._decoder.eof:
                    data, self._decoder, self._has_member = self._decoder.unused_data, None, True
                elif room:
                    break  # all of it is taken in
                else:
                    data = self._decoder.unconsumed_tail
                if not room:
                    self._rest, self.has_more = data, True
                    break
        except zlib.error as error:
            raise BodyBroken(f"the compressed body is damaged: {error}") from error
        return b"".join(out)


def _window_bits(head: bytes) -> int:
    if head[:2] == b"\x1f\x8b":
        return 16 + zlib.MAX_WBITS
    has_zlib_header = head[0] & 0x0F == 8 and (head[0] * 256 + head[1]) % 31 == 0
    return zlib.MAX_WBITS if has_zlib_header else -zlib.MAX_WBITS


def _hand_back(raw: Any) -> bool:
    """Give a connection whose body was read to its end, past urllib3, back to its pool; tell if that was possible."""
    answer: Any = getattr(raw, "_fp", None)
    if getattr(answer, "will_close", True) or not (hasattr(answer, "_close_conn") and hasattr(raw, "release_conn")):
        return False
    answer._close_conn()  # what http.client itself does at the end of a body: it lets go of the file, not the socket
    raw.release_conn()
    return True


def socket_of(raw: Any) -> Any:
    """Return the socket that a urllib3 response is read from, or `None`."""
    return getattr(getattr(getattr(getattr(raw, "_fp", None), "fp", None), "raw", None), "_sock", None)


def _is_ready(raw: Any, sock: Any, timeout: float) -> bool:
    """Wait until a read will not block, at most `timeout` seconds; tell whether that is so."""
    pending: Callable[[], int] | None = getattr(sock, "pending", None)
    if pending is None:
        return wait_for_read(sock, timeout)
    # What TLS has decoded already is no matter of the socket. And half a record, which makes the socket readable, is
    # none of ours: a read would block until the other half is there.
    return pending() > 0 or (wait_for_read(sock, timeout) and _peek(raw, sock) is not None)


def _peek(raw: Any, sock: Any) -> bytes | None:
    """Return what is read but not handed on, or else can be read without blocking; `None` if that is nothing yet.

    What arrived with the head of an answer is there before anything of its body is read. Later nothing is, since what
    is read at a time is more than the file below buffers.
    """
    timeout = sock.gettimeout()
    try:
        sock.settimeout(0)
        found: bytes = raw._fp.fp.peek(1)
    except (OSError, ValueError) as error:  # what is wrong `read` says better
        return None if isinstance(error, (BlockingIOError, SSLWantReadError)) else b""
    finally:
        with contextlib.suppress(OSError, ValueError):
            sock.settimeout(timeout)
    return found


_Step = Callable[[], Optional[bytes]]
"""Reads once. `None`: nothing of the body is complete yet; `b""`: it is at its end."""


def _source(raw: Any) -> tuple[_Step, Callable[[], bool], bool]:
    """Return what reads the next bytes, what tells that it need not wait, and if there may be a content coding."""
    answer: Any = getattr(raw, "_fp", None)
    file: Any = getattr(answer, "fp", None)
    if not (hasattr(file, "read1") and hasattr(answer, "chunked") and hasattr(answer, "length")):
        return _library_source(raw), _never, False
    read1: Callable[[int], bytes] = file.read1
    if answer.chunked:
        return (*_chunked_source(read1), True)
    if answer.length is not None:
        return (*_sized_source(read1, answer.length), True)
    return lambda: read1(READ_BYTES), _never, True


def _never() -> bool:
    return False


def _chunked_source(read1: Callable[[int], bytes]) -> tuple[_Step, Callable[[], bool]]:
    decoder = ChunkedDecoder()

    def read() -> bytes | None:
        if decoder.finished:
            return b""
        data = read1(READ_BYTES)
        if not data:
            raise BodyBroken("the connection ended in the middle of the body")
        return decoder.feed(data) or None

    return read, lambda: decoder.finished


def _sized_source(read1: Callable[[int], bytes], length: int) -> tuple[_Step, Callable[[], bool]]:
    left = length

    def read() -> bytes:
        nonlocal left
        if left == 0:
            return b""
        data = read1(min(READ_BYTES, left))
        if not data:
            raise BodyBroken("the connection ended in the middle of the body")
        left -= len(data)
        return data

    return read, lambda: left == 0


def _library_source(raw: Any) -> Callable[[], bytes]:
    read1 = getattr(raw, "read1", None)
    read = raw.read if read1 is None else read1
    try:
        read(0, decode_content=True)
    except TypeError:  # a plain file
        return lambda: bytes(read(READ_BYTES))
    except Exception:  # reported by the first real read
        pass
    return lambda: bytes(read(READ_BYTES, decode_content=True))
