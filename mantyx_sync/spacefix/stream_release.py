"""The release of a stream that lives for days, also beside the children of a fork."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..roster import Roster
from ..transport.body import Release

__all__ = ["StreamRelease"]


class StreamRelease(Release):
    """A `Release` whose stream the children of a fork let go of.

    A child has a copy of the socket's descriptor. Nobody reads from it there, yet it would keep the stream open when
    the parent has died: the gateway would send calls to nobody.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stream: Any = None

    def watch_socket(self, sock: Any) -> None:
        """Note the socket that the stream arrives on."""
        _watch_forks()
        self._stream = sock
        _open.add(self)
        super().watch_socket(sock)

    def close_copy(self) -> None:
        """Close this process's descriptor without shutting the connection down. Takes no lock."""
        sock, self._stream = self._stream, None
        if sock is not None:
            with contextlib.suppress(Exception):  # a socket of another kind, or closed already
                os.close(sock.detach())


_open: Roster[StreamRelease] = Roster()
_is_watching = False


def _watch_forks() -> None:
    global _is_watching
    if not _is_watching and hasattr(os, "register_at_fork"):
        _is_watching = True
        os.register_at_fork(after_in_child=_close_copies)


def _close_copies() -> None:
    for release in _open.items():
        _open.discard(release)
        release.close_copy()
