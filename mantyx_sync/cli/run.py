"""`mantyx-sync run`, `attach` and `cancel`: one run, from a terminal or a script."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from .answer import is_sure
from .asking import (
    DEFAULT_SYSTEM_PROMPT,
    add_spec_options,
    fields_of,
    needs_system_prompt,
    output_type_of,
    prompt_of,
    refuse_beside_session,
)
from .connecting import add_client_options, connect
from .detaching import detaching
from .exits import INTERRUPTED, OK, Stopped
from .following import Follower, Wishes
from .loading import NotKept, Unusable
from .offering import add_tool_options, tools_of
from .parsing import add_command, add_json_option, add_noise_options, log_shown, time_limit, whole
from .screen import Screen
from .starting import started
from .tables import print_json

if TYPE_CHECKING:
    from ..client import MantyxClient
    from ..run import Run

__all__ = ["add_commands"]

_RUN_DETAILS = """
The answer goes to standard output, everything else to standard error. Into a pipe or a
file the answer is written as it comes where nothing but the answer can come; with tools,
agents, plans and sessions, where a run takes several turns, only the final answer is, at
the end. --stream writes all the model says as it comes, --no-stream never before the end.

Functions given with --tool run in this process; what they print goes to standard error.
Ctrl-C cancels the run at the server.
"""

_RUN_EXAMPLES = """
mantyx-sync run "Tell me a story"
mantyx-sync run --local "Which Python version is this?" --tool platform:python_version
mantyx-sync run -s "You help customers." --tool shop:get_order "Where is order 17?"
mantyx-sync run --mcp "npx -y @modelcontextprotocol/server-filesystem ." "What is in here?"
mantyx-sync run - < question.txt > answer.txt
git diff | mantyx-sync run "Review this change:" -
mantyx-sync run --output-schema ticket.json --json "Order 17 is late!" | jq .output
mantyx-sync run --agent agent_7 --session ses_1 "And now?"
mantyx-sync run "Research this" --plan --set 'tool_budgets={"search": {"maxCalls": 5}}'
"""


def add_commands(groups: Any) -> None:
    """Add the commands to the parser's subparsers."""
    command = add_command(
        groups,
        "run",
        _run,
        "run an agent and print its answer",
        words="[PROMPT ...]",
        details=_RUN_DETAILS,
        examples=_RUN_EXAMPLES,
    )
    command.add_argument("prompt", nargs="*", metavar="PROMPT", help="what you say; - stands for standard input")
    command.add_argument("--timeout", type=time_limit, metavar="SECONDS", help="cancel the run after so long")
    session = command.add_mutually_exclusive_group()
    session.add_argument("--session", metavar="ID", help="go on in a session")
    session.add_argument("--new-session", action="store_true", help="begin a session, and say how to go on in it")
    _add_printing(command)
    add_tool_options(command)
    add_spec_options(command)
    add_client_options(command, with_local=True)

    command = add_command(
        groups,
        "attach",
        _attach,
        "follow a run that exists, and answer its open tool calls",
        words="RUN",
        details="Ctrl-C leaves the run to itself; `mantyx-sync cancel RUN` stops it.\n"
        "With --tool, calls that were answered before are not run again.",
        examples="""
        mantyx-sync attach run_7f3
        mantyx-sync attach run_7f3 --tool shop:get_order
        mantyx-sync attach run_7f3 --last-seq 41 --events
        """,
    )
    command.add_argument("run_id", metavar="RUN", help="the run")
    command.add_argument("--last-seq", type=_seq, default=0, metavar="N", help="leave out events up to this one")
    command.add_argument("--timeout", type=time_limit, metavar="SECONDS", help="leave the run to itself after so long")
    _add_printing(command)
    add_tool_options(command)
    add_client_options(command)

    command = add_command(
        groups,
        "cancel",
        _cancel,
        "stop runs",
        words="RUN ...",
        details="Prints each run with the status it has then.",
        examples="mantyx-sync cancel run_7f3",
    )
    command.add_argument("run_ids", nargs="+", metavar="RUN", help="a run")
    add_json_option(command)
    add_client_options(command)


def _seq(text: str) -> int:
    return whole(text, 0)


def _add_printing(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("output")
    data = group.add_mutually_exclusive_group()
    data.add_argument("--json", action="store_true", help="print how the run ended as one JSON object")
    data.add_argument(
        "--events", action="store_true", help="print each event as a line of JSON as it comes, then that object"
    )
    stream = group.add_mutually_exclusive_group()
    stream.add_argument("--stream", action="store_true", default=None, help="write all text as it comes")
    stream.add_argument("--no-stream", dest="stream", action="store_false", help="write the answer at the end")
    group.add_argument("--html", metavar="FILE", help="save the run as a page, also if it failed")
    group.add_argument("--timeline", action="store_true", help="draw the run in time when it is over")
    add_noise_options(
        group,
        quiet="leave out tools, plan, guards and progress",
        verbose="more: run id, what the model thinks, log, cost",
    )


def _run(options: argparse.Namespace) -> int:
    prompt = prompt_of(options.prompt if options.prompt or not options.spec else [])
    _check_page(options.html)
    screen = Screen(is_quiet=options.quiet)
    with screen, screen.taking_prints(), log_shown(is_verbose=options.verbose):
        tools = tools_of(options)
        fields = fields_of(options, tools)
        output_type = output_type_of(options)
        if options.session is not None:
            refuse_beside_session(fields)
        if prompt is not None:
            fields["prompt"] = prompt
        elif not (fields.get("prompt") or fields.get("messages")):
            raise Unusable('there is no prompt: give it as an argument in quotes ("…"), or pipe it in')
        with connect(options) as client:
            return _start(options, screen, client, fields, output_type)


def _start(
    options: argparse.Namespace, screen: Screen, client: MantyxClient, fields: dict[str, Any], output_type: Any
) -> int:
    session_id: Optional[str] = None
    if options.session is not None or options.new_session:
        with _session(options, client, fields) as session:
            session_id = session.id
            turn = {name: fields.pop(name) for name in ("prompt", "messages", "attachments") if name in fields}
            if options.new_session:  # the session has them all
                fields = {name: fields[name] for name in ("plan", "output_schema") if name in fields}
            create = partial(session.stream, timeout=options.timeout, output_type=output_type, **fields, **turn)
            return _follow(options, screen, create, is_sure=False, is_fit=output_type is None, session_id=session_id)
    if needs_system_prompt(fields):
        fields["system_prompt"] = DEFAULT_SYSTEM_PROMPT
    create = partial(client.stream_agent, timeout=options.timeout, output_type=output_type, **fields)
    return _follow(options, screen, create, is_sure=is_sure(fields), is_fit=output_type is None)


@contextlib.contextmanager
def _session(options: argparse.Namespace, client: MantyxClient, fields: dict[str, Any]) -> Iterator[Any]:
    if options.session is not None:
        session = client.resume_session(options.session, tools=fields.pop("tools", None))
    else:
        if needs_system_prompt(fields):
            fields["system_prompt"] = DEFAULT_SYSTEM_PROMPT
        turn = ("prompt", "messages", "attachments", "plan")
        session = client.create_session(**{name: value for name, value in fields.items() if name not in turn})
    with session:
        yield session


def _follow(
    options: argparse.Namespace,
    screen: Screen,
    create: Callable[[], Run],
    *,
    is_sure: bool,
    is_fit: bool,
    session_id: Optional[str] = None,
) -> int:
    is_streamed = options.stream if options.stream is not None else screen.shows_answer or (is_sure and is_fit)
    wishes = Wishes(is_verbose=options.verbose, is_json=options.json, is_events=options.events)
    follower = Follower(screen, wishes, is_streamed=is_streamed, session_id=session_id)
    connects = bool(options.mcp) and session_id is None  # a session has connected before
    with started(create, screen.print_line, connects_first=connects) as run, _ending(options, screen, run, follower):
        if options.verbose:
            screen.line(screen.style.dim(f"run {run.run_id}"))
        follower.follow(run)
    if options.new_session:
        screen.print_line(f"go on with: mantyx-sync run --session {session_id} …")
    return OK


@contextlib.contextmanager
def _ending(options: argparse.Namespace, screen: Screen, run: Run, follower: Follower) -> Iterator[None]:
    """Show what is asked for of a run that is over, however it ended, but for Ctrl-C and the like."""
    try:
        yield
    except KeyboardInterrupt:
        if run.abort():  # if not, whoever started it says so
            screen.line(screen.style.dim(f"interrupted: run {run.run_id} was asked to stop"))
        raise
    except Exception as error:
        if not isinstance(error, BrokenPipeError):
            try:
                _leave_behind(options, screen, run, follower)
            except NotKept as failure:  # what became of the run is told all the same
                screen.print_line(str(failure))
        raise
    _leave_behind(options, screen, run, follower)


def _leave_behind(options: argparse.Namespace, screen: Screen, run: Run, follower: Follower) -> None:
    follower.close(with_summary=options.verbose or (screen.is_live and screen.shows_answer))
    if options.timeline:
        for line in str(run.timeline()).splitlines():
            screen.print_line(line)
    if options.html is not None:
        try:
            run.to_html(options.html)
        except OSError as error:
            raise NotKept(f"--html: {options.html!r} cannot be written: {error.strerror}") from None


def _check_page(path: Optional[str]) -> None:
    """Refuse a place where no page can be written, before a run is paid for.

    Raises:
        Unusable: It is such a place.
    """
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    if not path or os.path.isdir(path):
        raise Unusable(f"--html: got {path!r}, must be a file to write")
    if not os.path.isdir(folder):
        raise Unusable(f"--html: there is no folder {folder!r}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise Unusable(f"--html: {path!r} cannot be written: permission denied")


def _attach(options: argparse.Namespace) -> int:
    _check_page(options.html)
    screen = Screen(is_quiet=options.quiet)
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    with screen, screen.taking_prints(), log_shown(is_verbose=options.verbose):
        tools = tools_of(options)
        with connect(options) as client:
            run = client.attach_run(options.run_id, tools=tools, last_seq=options.last_seq)
            is_streamed = screen.shows_answer if options.stream is None else options.stream
            wishes = Wishes(is_verbose=options.verbose, is_json=options.json, is_events=options.events)
            follower = Follower(screen, wishes, is_streamed=is_streamed)
            try:
                with detaching() as stop, _ending(options, screen, run, follower):
                    follower.follow(run, stop, deadline)
            except (Stopped, KeyboardInterrupt) as left:  # the latter: before signals were noted
                screen.print_line(_goes_on(options.run_id))
                return INTERRUPTED if isinstance(left, KeyboardInterrupt) else 128 + left.number
            finally:
                run.close()
    return OK


def _goes_on(run_id: str) -> str:
    return f"run {run_id} goes on: `mantyx-sync attach {run_id}` follows it, `mantyx-sync cancel {run_id}` stops it"


def _cancel(options: argparse.Namespace) -> int:
    with connect(options) as client:
        for run_id in options.run_ids:
            client.cancel_run(run_id)
            status = client.get_run(run_id).status
            if options.json:
                print_json({"runId": run_id, "status": status})
            else:
                print(f"{run_id}\t{status}", file=sys.stdout, flush=True)
    return OK
