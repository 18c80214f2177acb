"""The channel to an MCP server that is a program: its process, and a new one when that has ended (mcp §3)."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from ..checks import refusal, shown, whole_number
from .channel import DEFAULT_MAX_MESSAGE_BYTES, Era, Outgoing, Receiver, Waiting
from .command import server_command
from .conversation import Conversation
from .errors import McpCancelled, McpConnectionError, McpSessionGone, McpTimeoutError
from .process import GRACE, Grace

__all__ = ["StdioChannel"]

_SLICE_S = 0.1


class StdioChannel:
    """A `Channel` to a child process. Any thread may use it; a child of a fork starts a process of its own.

    A server that dies fails the calls that wait for it at once, with its exit code and the end of its standard error.
    The next call that relies on no particular process starts it again; a call that may have run is never repeated.

    The process runs in a session of its own: a Ctrl-C in our terminal does not reach it. It gets no descriptor of
    ours, and of our environment only what every program needs. It is ended, with all that it has started, by `close`,
    when nobody uses the channel any more, and when the interpreter ends; where that was killed, the server sees the end
    of its input. A program that leaves its session on purpose is beyond our reach.
    """

    def __init__(
        self,
        command: Union[str, Sequence[str]],
        receiver: Receiver,
        *,
        args: Sequence[str] = (),
        env: Optional[Mapping[str, str]] = None,
        cwd: Union[str, os.PathLike[str], None] = None,
        stderr: str = "keep",
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        grace: Grace = GRACE,
    ) -> None:
        """Check what was given; nothing is started yet, and the program is not looked for.

        Args:
            command: The program, or a list of the program and its arguments. There is no shell.
            receiver: Takes what the server sends unasked; held by a weak reference.
            args: Its arguments, after those in `command`.
            env: Variables for it, added to the few of ours that it gets.
            cwd: The folder it starts in; ours if there is none.
            stderr: `"keep"` reads it and keeps its end; `"inherit"` lets the server write to ours.
            max_message_bytes: Larger messages of the server are a protocol error.
            grace: How long the server may take to end by itself.

        Raises:
            MantyxConfigError: One of them cannot be used.
        """
        if stderr not in ("keep", "inherit"):
            raise refusal("stderr", shown(stderr), "be 'keep' or 'inherit'")
        self._command = server_command(command, args, env, cwd)
        self._keep_stderr = stderr == "keep"
        self._max_message_bytes = whole_number(max_message_bytes, "max_message_bytes", 1024)
        self._grace = grace
        self._receiver: weakref.ref[Receiver] = weakref.ref(receiver)
        self._states: Dict[int, _State] = {}  # by process: no thread, lock or child survives a fork
        self._is_closed = False
        # Not at the interpreter's end, when all processes are ended at once.
        weakref.finalize(self, _let_go, self._states).atexit = False

    def __repr__(self) -> str:
        return f"StdioChannel({self._command.name!r})"

    @property
    def label(self) -> str:
        """What to call the server in a sentence: the name of its program."""
        return f"MCP server {self._command.name!r}"

    @property
    def generation(self) -> int:
        """Number of the process in use; each start begins a new one, in the child of a fork as well."""
        return self._state().generation

    def exchange(self, request: Outgoing, waiting: Waiting) -> Mapping[str, Any]:
        """Send a request and return its response (see `Channel`). Blocks; nothing is sent twice.

        A request that relies on no generation starts the server if it does not run.
        """
        return self._conversation(request, waiting).exchange(request, waiting)

    def notify(self, message: Mapping[str, Any], era: Era, version: Optional[str], deadline: Optional[float]) -> None:
        """Send a notification (see `Channel`) to the process that there is; none is started for it."""
        conversation = self._state().conversation
        del era, version  # for HTTP; here a notification says all there is
        if conversation is None:
            raise McpConnectionError(f"{self.label} does not run; {message['method']} was not sent", sent=False)
        conversation.notify(message, deadline)

    def opened(self, era: Era, version: Optional[str]) -> None:
        """Note how the server is spoken to from now on."""
        del version
        conversation = self._state().conversation
        if conversation is not None:
            conversation.set_era(era)

    def close(self) -> None:
        """End the process and all that it has started; calls that wait fail. Blocks about five seconds at most.

        The server's input is closed; if it has not ended after two seconds it gets SIGTERM, and SIGKILL after two more.
        """
        self._is_closed = True
        conversation = self._state().conversation
        if conversation is not None:
            conversation.process.end()

    def _state(self) -> _State:
        pid = os.getpid()
        state = self._states.get(pid)
        if state is None:
            before = max((other.generation for other in list(self._states.values())), default=0)
            state = self._states.setdefault(pid, _State(before))
        return state

    def _conversation(self, request: Outgoing, waiting: Waiting) -> Conversation:
        """Return what is said with the process that a request is for; start that if it may be any."""
        state, wanted, method = self._state(), request.generation, request.message["method"]
        try:
            while not state.lock.acquire(timeout=_SLICE_S):  # another thread starts it, and has its own time to do that
                self._check(waiting, method)
            current = state.conversation
            if current is not None and not self._is_closed and current.is_usable:
                if wanted in (None, current.number):
                    return current
                raise McpSessionGone(f"{self.label} was started anew; {method} was not sent")
            self._check(waiting, method)
            if wanted is not None:
                raise McpSessionGone(f"{self.label} has ended; {method} was not sent")
            # Two processes of a server at a time might be in each other's way.
            while current is not None and not current.process.is_over(_SLICE_S):
                self._check(waiting, method)
            return self._start(state, waiting, method)
        finally:
            # Ctrl-C may come between getting the lock and knowing it: it is asked whether it is ours.
            with contextlib.suppress(RuntimeError):
                state.lock.release()

    def _start(self, state: _State, waiting: Waiting, method: str) -> Conversation:
        conversation = Conversation(
            self._command,
            self._receiver,
            label=self.label,
            number=state.generation + 1,
            keep_stderr=self._keep_stderr,
            max_message_bytes=self._max_message_bytes,
            grace=self._grace,
        )
        # Known before it is started, so that `close` and the next call find what Ctrl-C leaves half done.
        state.conversation = conversation
        self._check(waiting, method)
        conversation.process.start(waiting.deadline)
        state.generation = conversation.number
        return conversation

    def _check(self, waiting: Waiting, method: str) -> None:
        if self._is_closed:
            raise McpConnectionError(f"{self.label}: the client was closed; {method} was not sent", sent=False)
        if waiting.cancelled is not None and waiting.cancelled.is_set():
            raise McpCancelled(f"{self.label}: {method} was cancelled; it was not sent")
        if waiting.deadline is not None and time.monotonic() >= waiting.deadline:
            raise McpTimeoutError(f"{self.label}: {method}: the time allowed was over before it was sent")


class _State:
    """What belongs to one process of ours. Knows nothing of the channel."""

    def __init__(self, generation: int) -> None:
        self.lock = threading.RLock()
        self.generation = generation
        self.conversation: Optional[Conversation] = None


def _let_go(states: Mapping[int, _State]) -> None:
    """End the process of a channel that was collected, but not a parent's. Takes no lock."""
    state = states.get(os.getpid())
    if state is not None and state.conversation is not None:
        state.conversation.process.ask_to_end()
