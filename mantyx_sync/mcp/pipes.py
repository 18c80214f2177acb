"""What reading from and writing to a child process's pipes has to be: waits that can be woken, and that end in time.

`polled_pipes.py` does it wherever pipes can be polled, `threaded_pipes.py` on Windows.
"""

from __future__ import annotations

import os
from typing import Callable, Optional, Protocol

__all__ = ["MAX_POSTED_BYTES", "READ_BYTES", "SLICE_S", "Descriptor", "Inlet", "Outlet", "Piece"]

READ_BYTES = 65536
_WRITE_BYTES = 1024 * 1024

SLICE_S = 0.1
"""How long a write waits at once: between slices it looks whether its caller gave up."""

MAX_POSTED_BYTES = 8 * 1024 * 1024
"""How much may wait for a server that does not read, beside what callers wait for themselves."""


class Descriptor:
    """A file descriptor that is closed once, whoever does it."""

    def __init__(self, number: int) -> None:
        self._numbers = [number]

    @property
    def number(self) -> Optional[int]:
        """What the system calls it; `None` once it is closed."""
        numbers = self._numbers[:]
        return numbers[0] if numbers else None

    def make_non_blocking(self) -> None:
        """Have reads and writes at this end return at once; the other end stays as it is."""
        os.set_blocking(self._numbers[0], False)

    def close(self) -> None:
        """Close it, unless it is closed. Takes no lock."""
        try:
            number = self._numbers.pop()  # one step: nobody else gets it
        except IndexError:
            return
        try:
            os.close(number)
        except OSError:
            pass


class Inlet(Protocol):
    """Our end of a pipe that a server writes to. One thread reads."""

    def read(self, timeout: Optional[float] = None, outlet: Optional[Outlet] = None) -> Optional[bytes]:
        """Wait for bytes; `b""` at the end of the output, `None` when the time is over or `wake` was called.

        Args:
            timeout: Seconds; `None` waits until there is something.
            outlet: Written to meanwhile, as far as something is left over for it.
        """
        ...

    def wake(self) -> None:
        """End the wait of the reading thread, now or when it begins. Takes no lock, does not block."""
        ...

    def close(self) -> None:
        """Free our end; for the reading thread, or once it has ended."""
        ...

    def forget(self) -> None:
        """Free our end in a child of a fork. Takes no lock."""
        ...


class Piece:
    """Bytes on their way to a server, which gets all of them or none."""

    def __init__(self, data: bytes, is_posted: bool = False) -> None:
        self.size = len(data)
        self.is_posted = is_posted
        self.is_claimed = False
        """A thread is about to write it, and will not be stopped."""
        self._data = memoryview(data)
        self._counts: list[int] = []

    @property
    def has_begun(self) -> bool:
        """Whether the server got, or is to get, any of it."""
        return self.is_claimed or bool(self._counts)

    @property
    def is_done(self) -> bool:
        """Whether all of it is written."""
        return sum(self._counts) >= self.size

    def write_to(self, number: int) -> None:
        """Write some of it to a file descriptor; raises what `os.write` raises."""
        rest = self._data[sum(self._counts) :]
        # Written and counted in one step that Ctrl-C cannot divide: bytes sent twice would garble all that follows.
        self._counts.extend(map(os.write, (number,), (rest[:_WRITE_BYTES],)))


class Outlet(Protocol):
    """Our end of a pipe that a server reads from. Any thread may write; the pieces of several do not mix."""

    def write(self, piece: Piece, deadline: Optional[float], is_given_up: Callable[[], bool]) -> bool:
        """Write a piece; wait for the server to take it, until `deadline` or until the caller gives up.

        A piece that was begun when its caller leaves is completed behind his back; one that was not is dropped.

        Returns:
            Whether all of it is written.

        Raises:
            BrokenPipeError: The pipe is closed, at this end or the other.
        """
        ...

    def post(self, data: bytes) -> bool:
        """Write what the pipe takes and leave the rest to the reading thread. Does not block.

        Returns:
            False if it was dropped: the pipe is closed, or the server has not read for too long.
        """
        ...

    def close(self) -> None:
        """Close it: the server sees the end of its input. What was not written is dropped. Does not block."""
        ...

    def forget(self) -> None:
        """Free our end in a child of a fork. Takes no lock."""
        ...
