"""A server's process: started, read from, written to, and ended for good with everything it started (mcp §3).

One thread owns a process from before its start to after its end. It starts it (Ctrl-C reaches the main thread alone, so
no start is left half done), reads its output, and sees the whole group out: the input is closed, then SIGTERM, then
SIGKILL, each followed by a bounded wait. Whoever wants it to end sets a flag and wakes that thread: `close()`, the
interpreter's end, and the garbage collector, which does not wait.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Callable, NamedTuple, Optional, Protocol

from ..transport.bell import Bell
from .alive import ALIVE, rest_in_child
from .command import ServerCommand, environment, find_program, start_failure
from .endings import how_it_ended
from .errors import McpConnectionError, McpTimeoutError
from .group import ProcessGroup
from .pipes import Descriptor, Inlet, Outlet, Piece
from .polled_pipes import PolledInlet, PolledOutlet
from .stderr_tail import StderrTail
from .threaded_pipes import ThreadedInlet, ThreadedOutlet

__all__ = ["GRACE", "Death", "Grace", "ServerProcess", "Sink"]

log = logging.getLogger(__name__)

CAN_POLL = sys.platform != "win32"

_LOOK_S = 0.5
"""How often we look whether a silent process is still there: its output does not end while a child of it holds it."""
_EXIT_S = 1.0
"""How long a process may take to exit whose output has ended, before we say that it has not."""
_LAST_WORDS_S = 0.25
"""How long we wait for the end of a dead server's standard error, which another process may hold."""
_CHILDREN_S = 0.5
"""How long the children that a server leaves behind get to end by themselves."""
_KILL_S = 2.0
"""How long we wait for the system to remove what was killed."""
_SLICE_S = 0.25  # Ctrl-C is noticed between slices


class Grace(NamedTuple):
    """How many seconds a process gets to end before the next step: after its input is closed, and after SIGTERM."""

    after_eof: float = 2.0
    after_term: float = 2.0


GRACE = Grace()


@dataclass(frozen=True)
class Death:
    """How a server's process ended, or ceased to be of use.

    Attributes:
        how: The end of a sentence: `exited with code 1`.
        exit_code: Negative: the signal that ended it. `None`: it is not known, or the process had not exited.
        stderr_tail: The last of what it wrote to standard error.
        is_wanted: We ended it.
    """

    how: str
    exit_code: Optional[int] = None
    stderr_tail: str = ""
    is_wanted: bool = False


class Sink(Protocol):
    """Takes what comes from a process, on the thread that owns it."""

    def feed(self, data: bytes) -> None:
        """Take some of its output."""
        ...

    def over(self, death: Death) -> None:
        """Learn that nothing more comes. Called once, and at once: the process group is ended afterwards."""
        ...


class ServerProcess:
    """One process of a server. Every method may be called from any thread."""

    def __init__(
        self, command: ServerCommand, sink: Sink, *, label: str, keep_stderr: bool = True, grace: Grace = GRACE
    ) -> None:
        """Prepare it; nothing is started yet."""
        self._command = command
        self._sink = sink
        self._label = label
        self._keep_stderr = keep_stderr
        self._grace = grace
        self._thread_name = f"mantyx-mcp-{command.name}"
        self._group: Optional[ProcessGroup] = None
        self._inlet: Optional[Inlet] = None
        self._outlet: Optional[Outlet] = None
        self._stderr: Optional[StderrTail] = None
        self._pipes: list[Descriptor] = []
        """Our ends."""
        self._failure: Optional[McpConnectionError] = None
        self._is_started = False
        self._started = Bell()
        self._is_ending = False
        self._broken = ""
        """Why it is of no use any more."""
        self._is_eof = False
        self._is_left = False
        """It belongs to the parent of this process."""
        # Owned by this object: woken by `ask_to_end`, joined by `end` and at the interpreter's end. A daemon, as the
        # interpreter would otherwise wait for it before it tells us that it ends.
        self._owner = threading.Thread(target=self._live, name=f"{self._thread_name}-reader", daemon=True)

    # ------------------------------------------------------------------------------------ from outside

    def start(self, deadline: Optional[float]) -> None:
        """Start it; blocks until the system has started the program, which does not yet say that it works.

        Raises:
            McpConnectionError: There is no such program, or it could not be started. Nothing is left of it.
            McpTimeoutError: `deadline` passed. It is ended as soon as it has started.
        """
        try:
            if not ALIVE.add(self):
                raise self._not_started("the interpreter is ending")
            try:
                self._owner.start()
            except RuntimeError as error:  # there are too many threads, or the interpreter is ending
                ALIVE.remove(self)
                raise self._not_started(f"there is no thread for it ({error})", error) from None
            while not self._is_started:
                left = _SLICE_S if deadline is None else min(_SLICE_S, deadline - time.monotonic())
                if left <= 0:
                    raise McpTimeoutError(f"{self._label} was not started in time")
                self._started.wait(left)
        except BaseException:
            self.ask_to_end()
            raise
        failure, self._failure = self._failure, None
        if failure is not None:
            self._owner.join(_SLICE_S)
            try:
                raise failure.with_traceback(None)
            finally:
                del failure  # it would hold this frame, which holds it

    def write(self, piece: Piece, deadline: Optional[float], is_given_up: Callable[[], bool]) -> bool:
        """Write to its input, see `Outlet.write`."""
        if self._outlet is None:
            raise BrokenPipeError
        return self._outlet.write(piece, deadline, is_given_up)

    def post(self, data: bytes) -> bool:
        """Write to its input without blocking, see `Outlet.post`."""
        return self._outlet is not None and self._outlet.post(data)

    @property
    def is_up(self) -> bool:
        """Whether it was started, and has neither exited nor been asked to end."""
        return self._is_started and self._group is not None and not self._is_ending and not self._group.has_exited()

    def look(self) -> None:
        """Have it noticed now if the process has exited. Does not block."""
        if self._inlet is not None:
            self._inlet.wake()

    def abandon(self, how: str) -> None:
        """Have it ended because it is of no use any more; `how` is the end of a sentence. Does not block."""
        self._broken = how
        self.ask_to_end()

    def ask_to_end(self) -> None:
        """Have it ended, without waiting. Takes no lock: the garbage collector may call it."""
        self._is_ending = True
        if self._inlet is not None:
            self._inlet.wake()

    def end(self) -> None:
        """End the whole process group; blocks at most for the grace of each step, and a little more."""
        self.ask_to_end()
        if threading.current_thread() is not self._owner:
            self.end_by(time.monotonic() + self.longest_end)

    @property
    def longest_end(self) -> float:
        """How many seconds its end takes at most."""
        return sum(self._grace) + _CHILDREN_S + _KILL_S

    def end_by(self, deadline: float) -> None:
        """Wait for the end that it was asked to come to; at the deadline it is killed."""
        while not self.is_over(min(_SLICE_S, deadline - time.monotonic())):
            if time.monotonic() >= deadline:  # its thread is stuck somewhere
                if self._group is not None:
                    self._group.kill()
                return

    def is_over(self, wait_s: float = 0.0) -> bool:
        """Tell whether it has ended and everything is freed; wait for that some seconds."""
        if self._owner.is_alive() and not self._is_left:
            self._owner.join(max(0.0, wait_s))
        return self._is_left or not self._owner.is_alive()

    def forget(self) -> None:
        """Let go of it in a child of a fork: it goes on, for the parent. Takes no lock."""
        self._is_left = True
        for part in (self._group, self._inlet, self._outlet, self._stderr):
            if part is not None:
                part.forget()
        for pipe in self._pipes:
            pipe.close()

    # ------------------------------------------------------------------------------------ on its own thread

    def _live(self) -> None:
        try:
            try:
                self._start_program()
            except McpConnectionError as error:
                self._failure = error
            except Exception as error:
                self._failure = self._not_started(f"{type(error).__name__}: {error}", error)
            try:
                if self._failure is None:
                    self._started_now()
                    self._serve()
            finally:
                if self._is_left:
                    rest_in_child()
                self._see_out()
        finally:
            ALIVE.remove(self)
            self._started_now()

    def _started_now(self) -> None:
        self._is_started = True
        self._started.ring()

    def _start_program(self) -> None:
        command, env = self._command, environment(self._command, os.environ)
        if self._is_ending:
            raise self._not_started("it was closed")
        file = find_program(command, env.get("PATH"), self._label)
        theirs: list[int] = []
        try:
            self._open_pipes(theirs)
            self._group = ProcessGroup(
                [command.program, *command.args],
                file,
                pipes=[*theirs, None][:3],
                env=env,
                cwd=command.cwd,
            )
        except OSError as error:
            raise start_failure(error, command, file, self._label) from None
        finally:
            for number in theirs:
                os.close(number)
        if self._stderr is not None:
            self._stderr.start()
        log.debug("%s: process %d started", self._label, self._group.pid)

    def _open_pipes(self, theirs: list[int]) -> None:
        for is_input in (True, False, False)[: 2 + self._keep_stderr]:
            reading, writing = os.pipe()
            theirs.append(reading if is_input else writing)
            self._pipes.append(Descriptor(writing if is_input else reading))
        name = self._thread_name
        stdin, stdout, *stderr = self._pipes
        inlet = self._inlet = PolledInlet(stdout) if CAN_POLL else ThreadedInlet(stdout, f"{name}-stdout")
        self._outlet = PolledOutlet(stdin, inlet.wake) if CAN_POLL else ThreadedOutlet(stdin, f"{name}-stdin")
        for pipe in stderr:
            self._stderr = StderrTail(
                PolledInlet(pipe) if CAN_POLL else ThreadedInlet(pipe, f"{name}-stderr-pipe"), f"{name}-stderr"
            )

    def _serve(self) -> None:
        try:
            self._read()
        except Exception as error:  # whatever it is, nobody is left waiting
            if not self._is_left:
                log.exception("%s: reading its output failed", self._label)
                self._broken = f"could not be read from any more ({type(error).__name__})"
        if not self._is_left:
            self._sink.over(self._death())

    def _read(self) -> None:
        inlet = self._inlet
        assert inlet is not None
        while not self._is_ending and not self._is_left:
            data = inlet.read(_LOOK_S, self._outlet)
            if data:
                self._sink.feed(data)
            elif data is not None:
                self._is_eof = True
                return
            elif self._group is None or self._group.has_exited():
                # A child of it holds its output open; what it wrote itself is there by now.
                data = inlet.read(0.0)
                if not data:
                    return
                self._sink.feed(data)

    def _death(self) -> Death:
        stderr = self._stderr.text if self._stderr is not None else _nothing
        if self._broken:
            return Death(self._broken, stderr_tail=stderr())
        if self._is_ending:
            return Death("was closed", stderr_tail=stderr(), is_wanted=True)
        # The end of its output is seen a moment before the system says how it ended.
        group = self._group
        if group is not None and self._wait(time.monotonic() + _EXIT_S, group.has_exited):
            code = group.reap()
            return Death(how_it_ended(code), code, stderr(_LAST_WORDS_S))
        return Death("closed its output without exiting", stderr_tail=stderr())

    def _see_out(self) -> None:
        """End the group and free the pipes."""
        try:
            if self._outlet is not None:
                self._outlet.close()
            if self._group is not None:
                self._end_group(self._group)
        finally:
            for part in (self._stderr, self._inlet):
                if isinstance(part, StderrTail):
                    part.end()
                elif part is not None:
                    part.close()
            if self._group is None:  # there may not have been descriptors enough for all
                for pipe in self._pipes:
                    pipe.close()

    def _end_group(self, group: ProcessGroup) -> None:
        until = time.monotonic() + self._grace.after_eof
        # Its children are not told that it is gone, and may be about to notice.
        if (
            self._failure is None
            and self._wait(until, group.has_exited)
            and self._wait(min(until, time.monotonic() + _CHILDREN_S), group.is_gone)
        ):
            return
        group.terminate()
        if self._wait(time.monotonic() + self._grace.after_term, group.is_gone):
            return
        log.info("%s does not end; it is killed", self._label)
        group.kill()
        if not self._wait(time.monotonic() + _KILL_S, group.is_gone):
            log.warning("%s: the system does not remove a process of it", self._label)

    def _wait(self, until: float, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; what the server writes meanwhile is dropped, so that it is not stuck in writing it."""
        pause = 0.001
        while not condition():
            left = until - time.monotonic()
            if left <= 0 or self._is_left:
                return False
            pause = min(pause * 2, 0.05)
            if self._is_eof or self._inlet is None:
                time.sleep(min(pause, left))
            else:
                self._is_eof = self._inlet.read(min(pause, left)) == b""
        return True

    def _not_started(self, reason: str, cause: Optional[BaseException] = None) -> McpConnectionError:
        return McpConnectionError(f"{self._label} was not started: {reason}", sent=False, cause=cause)


def _nothing(wait_s: float = 0.0) -> str:  # noqa: ARG001
    return ""
