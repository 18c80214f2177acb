"""`mantyx-sync chat`: a conversation in a session, from a terminal or line by line from a pipe."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional

from ..checks import closest
from ..display.terminal import fit, plain
from ..display.wording import plural
from ..errors import MantyxConflictError, MantyxError, MantyxNotFoundError
from ..transport.bell import Bell
from .asking import DEFAULT_SYSTEM_PROMPT, add_spec_options, fields_of, needs_system_prompt, refuse_beside_session
from .connecting import add_client_options, connect
from .exits import OK
from .following import Follower, Wishes
from .loading import NotKept, Unusable
from .offering import add_tool_options, tools_of
from .parsing import add_command, add_noise_options, log_shown, time_limit
from .reading import FENCE, Reader
from .screen import Screen
from .showing import Look
from .starting import started

if TYPE_CHECKING:
    from ..client import MantyxClient
    from ..display.state import RunState
    from ..run import Run
    from ..session import AgentSession

__all__ = ["add_commands"]

_DETAILS = f"""
Each line is a message; a pasted text is one, and so is what stands between two lines of
{FENCE}. Ctrl-C stops the answer that is being written. Ctrl-C at the prompt, Ctrl-D or
/quit leave; the session stays, and `chat --session ID` goes on in it.

In the chat: /help, /tools, /models, /plan, /session, /new, /save FILE.html, /quit.

Out of a pipe each line is a message, and answers are written one below the other.
"""

_EXAMPLES = """
mantyx-sync chat
mantyx-sync chat --local --tool shop
mantyx-sync chat -s @instructions.txt -m gpt-5 --reasoning high
mantyx-sync chat --session ses_1
printf 'My name is Ada.\\nWhat is my name?\\n' | mantyx-sync chat
"""

_COMMANDS = {
    "help": "what can be typed here",
    "tools": "the tools that are offered from here",
    "models": "the models there are",
    "plan": "the plan of the last answer",
    "session": "which session this is",
    "new": "begin another session",
    "save": "FILE.html: save the conversation as a page",
    "quit": "leave; the session stays",
}

_RECENT = 6
_BUSY_S = 8.0


def add_commands(groups: Any) -> None:
    """Add the command to the parser's subparsers."""
    command = add_command(groups, "chat", _chat, "talk to an agent", words="", details=_DETAILS, examples=_EXAMPLES)
    command.add_argument("--session", metavar="ID", help="go on in a session")
    command.add_argument("--timeout", type=time_limit, metavar="SECONDS", help="cancel an answer after so long")
    add_noise_options(
        command, quiet="leave out tools, plan, guards and progress", verbose="more: what the model thinks, log, cost"
    )
    add_tool_options(command)
    add_spec_options(command, with_turn=False)
    add_client_options(command, with_local=True)


def _chat(options: argparse.Namespace) -> int:
    screen = Screen(is_quiet=options.quiet)
    with screen, log_shown(is_verbose=options.verbose):
        with screen.taking_prints():
            fields = fields_of(options, tools_of(options))
            for name in ("prompt", "messages", "attachments"):
                if name in fields:
                    raise Unusable(f"{name}: has no place in the spec of a chat, where messages are typed")
            if options.session is not None:
                refuse_beside_session(fields)
        with connect(options) as client:
            conversation = _Conversation(options, screen, client, fields)
            conversation.begin(options.session)
            try:
                return conversation.talk()
            finally:
                conversation.leave()


class _Leave(Exception):
    """`/quit`."""


class _Conversation:
    """One session, or several after one another."""

    _session: AgentSession

    def __init__(
        self, options: argparse.Namespace, screen: Screen, client: MantyxClient, fields: Mapping[str, Any]
    ) -> None:
        self._options = options
        self._screen = screen
        self._client = client
        self._fields = fields
        self._overrides: Mapping[str, Any] = {}
        self._reader = Reader(screen.style)
        self._last: Optional[RunState] = None
        self._is_kept = False  # something was said in it
        self._was_stopped = False

    # ------------------------------------------------------------------------------------------- life

    def begin(self, session_id: Optional[str]) -> None:
        """Take up a session, or make one. Blocks.

        Raises:
            MantyxError: As `MantyxClient.create_session` and `resume_session`.
        """
        fields = dict(self._fields)
        if session_id is None:
            if needs_system_prompt(fields):
                fields["system_prompt"] = DEFAULT_SYSTEM_PROMPT
            self._session = self._client.create_session(**fields)
            self._is_kept, self._overrides = False, {}
        else:
            self._session = self._client.resume_session(session_id, tools=fields.pop("tools", None))
            self._is_kept, self._overrides = True, fields
            self._recall()
        if self._reader.is_person:
            self._tell("Type a message; /help says what else can be typed.")

    def leave(self) -> None:
        """Let go of the session, and say how to come back. One in which nothing was said is ended."""
        session, self._screen.is_quiet = self._session, False
        if not self._is_kept:
            try:
                session.end()
            except MantyxError:
                session.close()
            return
        session.close()
        if not self._options.local:
            self._tell(f"go on with: mantyx-sync chat --session {session.id}")

    def talk(self) -> int:
        """Read messages and answer them until there are no more; return the exit code. Blocks.

        Raises:
            MantyxError: An answer failed, and nobody is there to type something else.
            KeyboardInterrupt: Ctrl-C, twice.
        """
        while True:
            try:
                text = self._reader.read("> ")
            except EOFError:
                self._end_prompt()
                return OK
            except KeyboardInterrupt:
                if not self._reader.is_person:
                    raise
                self._end_prompt()
                return OK
            except Unusable as error:
                if not self._reader.is_person:
                    raise
                self._say_error(error)
                continue
            try:
                self._take(text)
            except _Leave:
                return OK
            except (MantyxError, NotKept, Unusable) as error:
                if not self._reader.is_person:
                    raise
                self._say_error(error)

    def _end_prompt(self) -> None:
        if self._reader.is_person:
            print(file=sys.stderr)

    # ------------------------------------------------------------------------------------------- messages

    def _take(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        if not word:
            return
        # A leading blank makes a message of what looks like a command.
        if text.startswith("/") and word[1:].isalpha():
            self._command(word[1:], rest.strip())
        else:
            self._answer(text.strip())

    def _answer(self, text: str) -> None:
        screen = self._screen
        wishes = Wishes(is_verbose=self._options.verbose)
        follower = Follower(screen, wishes, is_streamed=screen.shows_answer)
        with screen.taking_prints():
            try:
                with self._send(text) as run:
                    self._is_kept = True
                    follower.follow(run)
            except KeyboardInterrupt:
                self._was_stopped = True
                if not self._reader.is_person:
                    raise
                screen.line(screen.style.dim("stopped"))
            finally:
                self._last = follower.state
                follower.close(with_summary=self._options.verbose)
                screen.end_line()
        if self._reader.is_person and screen.shows_answer:
            screen.answer("\n")

    @contextlib.contextmanager
    def _send(self, text: str) -> Iterator[Run]:
        """Send a message. The server may be busy for a moment with an answer that was stopped."""
        deadline, pause = time.monotonic() + _BUSY_S, 0.05
        create = partial(self._session.stream, text, timeout=self._options.timeout, **self._overrides)
        is_sent = False
        while True:
            try:
                with started(create, self._screen.print_line) as run:
                    is_sent, self._was_stopped = True, False
                    yield run
                return
            except MantyxConflictError as error:
                if is_sent or not self._was_stopped or error.code != "session_busy" or time.monotonic() > deadline:
                    raise
            Bell().wait(pause)
            pause = min(2 * pause, 1.0)

    def _recall(self) -> None:
        """Show the last messages of a session that is taken up."""
        info = self._session.info()
        style, width = self._screen.style, self._screen.width
        said = [m for m in info.messages if m.get("role") in ("user", "assistant")]
        if len(said) > _RECENT:
            self._tell(f"… {plural(len(said) - _RECENT, 'earlier message')}")
        for message in said[-_RECENT:]:
            text = str(message.get("content") or "")
            if message["role"] == "user":
                self._screen.line(style.cyan("> ") + fit(text, width - 2))
            else:
                self._screen.line(style.dim(plain(text.strip())))
        if info.status == "ended":
            self._tell("the session has ended; /new begins another")
        self._reader.remember(str(m.get("content") or "") for m in said if m["role"] == "user")

    # ------------------------------------------------------------------------------------------- commands

    def _command(self, name: str, rest: str) -> None:
        do: dict[str, Callable[[str], None]] = {
            "help": self._help,
            "tools": self._tools,
            "models": self._models,
            "plan": self._plan,
            "session": self._about,
            "new": self._new,
            "save": self._save,
            "quit": self._quit,
            "exit": self._quit,
        }
        if name not in do:
            near = closest(name, _COMMANDS)
            hint = f"; did you mean /{near}?" if near else "; /help lists them"
            raise Unusable(f"there is no command /{name}{hint} (a blank before it makes it a message)")
        do[name](rest)

    def _help(self, _rest: str) -> None:
        for name, what in _COMMANDS.items():
            self._tell(f"/{name.ljust(8)} {what}")
        self._tell(f"{FENCE}       a message of several lines, to the next {FENCE}")
        self._tell("Ctrl-C    stops an answer; at the prompt it leaves, like Ctrl-D")

    def _tools(self, _rest: str) -> None:
        tools = self._fields.get("tools") or ()
        for tool in tools:
            name = getattr(tool, "name", None) or getattr(tool, "__name__", None) or repr(tool)
            about = getattr(tool, "description", None) or getattr(tool, "__doc__", None) or ""
            about = about.strip().partition("\n")[0]
            self._tell(fit(f"{name}" + (f": {about}" if about else ""), self._screen.width))
        if not tools:
            self._tell("none: --tool and --mcp offer some")

    def _models(self, _rest: str) -> None:
        catalog = self._client.list_models()
        for model in catalog:
            is_default = model.id == catalog.default_model_id
            self._tell(f"{model.id}  {model.label}" + ("  (default)" if is_default else ""))

    def _plan(self, _rest: str) -> None:
        plan = None if self._last is None else self._last.plan
        if plan is None or not plan.steps:
            self._tell("the last answer had no plan: --plan has one made")
            return
        screen = self._screen
        for line in Look(screen.style, screen.glyphs, screen.width).plan(plan):
            screen.line(line)

    def _about(self, _rest: str) -> None:
        info = self._session.info()
        self._tell(f"session {info.id}, {info.status}, {plural(len(info.messages), 'message')}")

    def _new(self, _rest: str) -> None:
        left, was_kept = self._session, self._is_kept
        if self._options.session is not None and needs_system_prompt(self._fields):
            self._tell("it has no settings of the session that was taken up; what was given on the command line holds")
        self.begin(None)
        if was_kept:
            left.close()
            self._tell(f"the one before: mantyx-sync chat --session {left.id}")
        else:
            left.end()

    def _save(self, rest: str) -> None:
        if not rest:
            raise Unusable("/save needs a file: /save FILE.html")
        try:
            self._session.info().to_html(rest)
        except OSError as error:
            raise NotKept(f"{rest!r} cannot be written: {error.strerror}") from None
        self._tell(f"saved as {rest}")

    def _quit(self, _rest: str) -> None:
        raise _Leave

    def _tell(self, text: str) -> None:
        self._screen.line(self._screen.style.dim(plain(text)))

    def _say_error(self, error: Exception) -> None:
        text = str(error)
        if isinstance(error, MantyxNotFoundError):
            text += "; /new begins another session"
        self._screen.print_line(text, self._screen.style.red)
