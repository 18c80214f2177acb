"""Tools that live elsewhere, while they are needed: opened before a run is created, closed when it is over (wire §1).

Each server has a thread here, its keeper: it resolves the ref, waits until nobody needs the server any more, and closes
what was opened. So several servers are reached at once; a server that takes its time to end delays no result; and the
garbage collector, which may neither wait nor start a thread, can let go of one.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import copy
import logging
import os
import threading
import time
import weakref
from typing import Any, Callable, Iterable, Sequence, Union

from .errors import MantyxError, MantyxTimeoutError
from .progress import Progress, Reporting
from .roster import Roster
from .tools.registry import Registry
from .tools.resolution import Resolvable, Resolved, check_collisions, describe_ref, is_resolvable
from .transport.bell import Inbox, Signal

__all__ = ["Keeper", "OpenedTools", "join_keepers", "open_tools"]

log = logging.getLogger(__name__)

_GRACE_S = 1.0
"""How long past the deadline a ref has to notice it by itself."""
CLOSE_S = 5.0
"""How long the end of a process, or of a client, waits for servers to end: longer than ending one by force takes."""

_LONG_S = 3600.0

_Outcome = Union[Resolved, BaseException]


def _ignore(_outcome: _Outcome) -> None:
    pass


class Keeper:
    """The thread of one server. As an `Opening` it is what the ref is resolved with."""

    def __init__(self, ref: Resolvable, deadline: float | None = None, parent: Keeper | None = None) -> None:
        """Start nothing yet.

        Args:
            deadline: On the monotonic clock.
            parent: After a fork, the keeper whose thread stayed behind: what it was to close is opened already.
        """
        self.label = describe_ref(ref)
        self.deadline = deadline
        self.ref = ref
        self._closers: list[Callable[[], None]] = [] if parent is None else parent._closers
        self._is_opening = parent is None
        self._over = Signal()
        context = contextvars.copy_context()
        work = self._run if parent is None else self._keep
        # Owned by this object: `let_go` wakes it, `join` waits for its end. A daemon: `_join_at_exit` gives servers
        # the time to end, and what does not end then must not keep the interpreter.
        self._thread = threading.Thread(target=context.run, args=(work,), name=f"mantyx-tools-{ref.name}", daemon=True)
        self._report: Callable[[_Outcome], None] = _ignore

    @property
    def is_over(self) -> bool:
        """True once it was let go of."""
        return self._over.is_set()

    def start(self, report: Callable[[_Outcome], None]) -> None:
        """Start the thread; `report` is called on it with the resolved ref, or with what was raised."""
        self._report = report
        _keepers.add(self)
        self._thread.start()

    def at_end(self, close: Callable[[], None]) -> None:
        """See `Opening.at_end`."""
        self._closers.append(close)
        if self._over.is_set():  # looked at behind the line above: who gives up sets it, then closes what is there
            close()

    def let_go(self) -> None:
        """Have everything closed soon. Takes no lock and waits for nothing: the garbage collector calls this."""
        self._over.set()

    def give_up(self) -> None:
        """Let go of a server that may still be being opened: end the waits in that. Does not block."""
        self.let_go()
        if self._is_opening and self._closers:
            # Not on this thread: ending a process may take seconds. Ends by itself, like closing does.
            with contextlib.suppress(RuntimeError):  # no thread to be had: opening ends at its deadline
                threading.Thread(target=self._close, name=self._thread.name + "-abort", daemon=True).start()

    def join(self, until: float) -> None:
        """Wait for the thread to end, up to a time on the monotonic clock; for one still opening a second at most."""
        if self._is_opening:
            until = min(until, time.monotonic() + _GRACE_S)
        if self._thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):  # it was never started
                self._thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        try:
            outcome: _Outcome = self.ref.resolve(self)
        except BaseException as error:  # handed to who waits for it
            outcome = error
            self.let_go()
        self._is_opening = False
        self._report(outcome)
        self._report = _ignore
        del outcome
        self._keep()

    def _keep(self) -> None:
        if self._closers:
            while not self._over.is_set():
                self._over.wait(_LONG_S)
            self._close()
        _keepers.discard(self)

    def _close(self) -> None:
        for close in list(self._closers):
            try:
                close()
            except Exception:
                log.warning("%s: closing it failed", self.label, exc_info=True)


class OpenedTools:
    """A list of tools of which those that live elsewhere are resolved. Let go of at the latest when it is collected."""

    def __init__(self, refs: Sequence[Any], keepers: Sequence[Keeper] = ()) -> None:
        self.refs = tuple(refs)
        self._hold(keepers)

    def _hold(self, keepers: Sequence[Keeper]) -> None:
        self._keepers = tuple(keepers)
        self._pid = os.getpid()
        if keepers:
            weakref.finalize(self, _let_go, self._keepers).atexit = False

    def stay_here(self, roster: Roster[Keeper]) -> None:
        """In a child of a fork, see to it that what the child opens anew is closed in the child."""
        if self._pid == os.getpid() or not self._keepers:
            return
        keepers = [Keeper(keeper.ref, parent=keeper) for keeper in self._keepers]
        for keeper in keepers:
            roster.add(keeper)
            keeper.start(_ignore)
        self._hold(keepers)

    @property
    def is_over(self) -> bool:
        """True once it was let go of: what lives elsewhere has to be opened anew."""
        return any(keeper.is_over for keeper in self._keepers)

    @property
    def has_servers(self) -> bool:
        """True if some of the tools live elsewhere."""
        return bool(self._keepers)

    def registry(self) -> Registry:
        """Return who answers the calls of one conversation; it keeps the tools open for as long as it is held."""
        return Registry(self.refs, owner=self)

    def let_go(self) -> None:
        """Have everything that was opened be closed soon. Does not block."""
        if self._pid == os.getpid():  # a child of a fork leaves its parent's servers alone
            _let_go(self._keepers)

    def close(self, timeout: float) -> None:
        """Let go, and wait until everything is closed, at most `timeout` seconds."""
        self.let_go()
        if self._pid == os.getpid():
            join_keepers(self._keepers, timeout)


def open_tools(
    tools: Sequence[Any], deadline: float | None, roster: Roster[Keeper], report: Reporting | None = None
) -> OpenedTools:
    """Resolve those of `tools` that live elsewhere, all at once. Blocks until they are, or one cannot be.

    Args:
        deadline: On the monotonic clock; each ref has a limit of its own besides.
        roster: Where the owner of a client finds what is open.
        report: Told on this thread when they are being opened, and of each that is ready. Left open.

    Raises:
        MantyxError: One cannot be resolved: the message names it, and what was opened is being closed. Of the class
            that says why, with its attributes.
        MantyxConfigError: Two of their tools have the same name.
    """
    wanted = [(i, tool) for i, tool in enumerate(tools) if is_resolvable(tool)]
    if not wanted:
        return OpenedTools(tools)
    keepers: list[Keeper] = []
    reports: Inbox[tuple[int, _Outcome]] = Inbox()
    refs = list(tools)
    report = Reporting(None) if report is None else report
    try:
        for i, tool in wanted:
            keeper = Keeper(tool, deadline)
            keepers.append(keeper)
            roster.add(keeper)
            keeper.start(lambda outcome, i=i: reports.put((i, outcome)))  # type: ignore[misc]  # its default is the index
        report(_progress(tools, refs, wanted))
        for _ in wanted:
            i, outcome = reports.get(None if deadline is None else deadline + _GRACE_S)
            if isinstance(outcome, BaseException):
                raise _said_of(i, tools[i], outcome) from outcome
            refs[i] = outcome
            report(_progress(tools, refs, wanted, outcome))
        check_collisions(refs)
        if any(keeper.is_over for keeper in keepers):
            raise MantyxError("the client was closed while tools were being opened. Nothing was sent.", code="closed")
        return OpenedTools(refs, keepers)
    except BaseException as error:
        for keeper in keepers:
            keeper.give_up()
        if isinstance(error, TimeoutError) and not isinstance(error, MantyxError):
            slow = ", ".join(f"tools[{i}] ({describe_ref(tool)})" for i, tool in wanted if refs[i] is tool)
            raise MantyxTimeoutError(f"{slow}: not ready in time. Nothing was sent.") from None
        if isinstance(error, RuntimeError):
            raise MantyxError(f"tools: no thread can be started to open them ({error})", code="no_thread") from error
        raise


def _progress(
    tools: Sequence[Any], refs: Sequence[Any], wanted: Sequence[tuple[int, Any]], ready: Resolved | None = None
) -> Progress:
    """Say which server is ready, and which ones are not yet."""
    missing = [tool.name for i, tool in wanted if refs[i] is tools[i]]
    parts = [] if ready is None else [_readiness(ready)]
    if missing:
        parts.append(f"starting {', '.join(missing)}")
    return Progress("servers", len(wanted) - len(missing), 0, len(wanted), "; ".join(parts))


def _readiness(ref: Resolved) -> str:
    catalog = ref.to_wire().get("tools")
    if not isinstance(catalog, Sequence):
        return f"{ref.name} is ready"
    return f"{ref.name} is ready with {len(catalog)} tool{'s' if len(catalog) != 1 else ''}"


def join_keepers(keepers: Iterable[Keeper], timeout: float) -> None:
    """Wait for keepers that were let go of, at most `timeout` seconds in all."""
    until = time.monotonic() + timeout
    for keeper in keepers:
        keeper.join(until)


def _let_go(keepers: Iterable[Keeper]) -> None:
    for keeper in keepers:
        keeper.let_go()


def _said_of(i: int, tool: Any, error: BaseException) -> BaseException:
    """Return an error of the same class that says which of the tools it is about."""
    where = f"tools[{i}] ({describe_ref(tool)})"
    if not isinstance(error, MantyxError):
        return MantyxError(f"{where}: {type(error).__name__}: {error}. Nothing was sent.", code="tool_unavailable")
    said = copy.copy(error)
    said.message = f"{where}: {error.message.rstrip('.')}. Nothing was sent."
    said.args = (said.message,)
    return said


_keepers: Roster[Keeper] = Roster()


@atexit.register
def _join_at_exit() -> None:
    """Let every server end while threads can still run."""
    keepers = _keepers.items()
    _let_go(keepers)
    join_keepers(keepers, CLOSE_S)
