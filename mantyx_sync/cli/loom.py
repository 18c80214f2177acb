"""`mantyx-sync loom …`: steer the looms of a project from a terminal, and do their agent tasks."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from ..display.terminal import plain
from .loading import Unusable, load
from .parsing import add_command, add_json_option, log_to_stderr, seconds
from .streams import json_text, note

if TYPE_CHECKING:
    from ..loom import Answer, LoomClient, LoomError, LoomRun, LoomTask, PendingAction, Question

__all__ = ["add_commands"]

TOKEN_VARIABLE = "LOOM_TOKEN"

_EXAMPLES = {
    "list": "mantyx-sync loom list --project ~/shop",
    "run": "mantyx-sync loom run release 'Ship 2.4' --timeout 600",
    "runs": "mantyx-sync loom runs release --json",
    "answer": "mantyx-sync loom answer RUN-1",
    "artifacts": "mantyx-sync loom artifacts ART-7 > plan.json",
    "cancel": "mantyx-sync loom cancel RUN-1",
    "pause": "mantyx-sync loom pause RUN-1",
    "resume": "mantyx-sync loom resume RUN-1",
    "worker": "mantyx-sync loom worker tasks:execute --agent writer",
}


def add_commands(groups: Any) -> None:
    """Add the commands to the parser's subparsers."""
    group = groups.add_parser(
        "loom",
        help="start and follow looms, answer their questions, do their agent tasks",
        description="Start and follow looms, answer their questions, do their agent tasks.",
        epilog="examples:\n  mantyx-sync loom list\n  mantyx-sync loom run release 'Ship 2.4'\n\n"
        "exit codes: 0 done, 1 failed, 2 arguments that cannot be used",
    )
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    _add(commands, "list", _list, "list the looms of the project")
    command = _add(commands, "run", _run, "start a loom and follow it to its end, asking its questions here")
    command.add_argument("loom", help="the loom's name")
    command.add_argument("input", help="its input, a text")
    command.add_argument("--json-input", action="store_true", help="the input is JSON")
    command.add_argument("--no-wait", action="store_true", help="print the run and leave it to itself")
    command.add_argument("--timeout", type=seconds, metavar="SECONDS", help="leave the run to itself after so long")
    command = _add(commands, "runs", _runs, "list runs, those of earlier services as well")
    command.add_argument("loom", nargs="?", help="only those of this loom")
    command = _add(commands, "answer", _answer, "ask what a run waits for here, and follow it to its end")
    command.add_argument("run_id", metavar="RUN")
    command.add_argument("--timeout", type=seconds, metavar="SECONDS", help="leave the run to itself after so long")
    command = _add(commands, "artifacts", _artifacts, "list artifacts, or print the data of one")
    command.add_argument("artifact_id", metavar="ID", nargs="?", help="print the data of this one")
    command.add_argument("--loom", help="only those of this loom")
    command.add_argument("--stage", help="only those of this stage")
    for name, what in (
        ("cancel", "stop a run; what was done is not undone"),
        ("pause", "have a run pause behind its current step"),
        ("resume", "have a paused run go on"),
    ):
        _add(commands, name, _steer, what).add_argument("run_id", metavar="RUN")
    command = _add(commands, "worker", _worker, "do agent tasks with a function, until Ctrl-C")
    command.add_argument("execute", metavar="MODULE:NAME", help="takes a LoomTask and returns its result")
    command.add_argument("--agent", action="append", metavar="ID", help="only tasks of this agent; may be repeated")
    command.add_argument("--loom", help="only tasks of this loom")
    command.add_argument("--store", metavar="DIR", help="where claims are kept")
    command.add_argument(
        "--grace", type=seconds, default=10.0, metavar="SECONDS", help="for the task at hand at the end (default: 10)"
    )
    command.add_argument("--quiet", action="store_true", help="log warnings and errors only")


def _add(commands: Any, name: str, run: Callable[[argparse.Namespace], int], what: str) -> argparse.ArgumentParser:
    parser = add_command(commands, name, run, what, examples=_EXAMPLES[name])
    parser.set_defaults(tells_apart=False)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", metavar="DIR", help="a folder in the project (default: the working directory)")
    where.add_argument("--url", help=f"the service's entry instead; its token is taken from {TOKEN_VARIABLE}")
    where.add_argument("--proxy", metavar="COMMAND", help="the stdio proxy's command line instead")
    if name != "worker":
        add_json_option(parser)
    return parser


def _connect(options: argparse.Namespace) -> LoomClient:
    from ..loom import LoomClient

    if options.url is not None:
        token = os.environ.get(TOKEN_VARIABLE)
        if not token:
            raise Unusable(f"--url needs the service's token in {TOKEN_VARIABLE}")
        return LoomClient.connect(url=options.url, token=token)
    if options.proxy is not None:
        try:
            command = shlex.split(options.proxy)
        except ValueError as error:
            raise Unusable(f"--proxy is no command line: {error}") from None
        if not command:
            raise Unusable("--proxy is empty, must be a command line")
        return LoomClient.connect(command=command)
    return LoomClient.connect(options.project)


def _list(options: argparse.Namespace) -> int:
    with _connect(options) as client:
        for loom in client.list_looms():
            state = "ready" if loom.is_ready else "available" if loom.is_available else f"not available ({loom.phase})"
            _print(options, loom.raw, f"{loom.loom_name}\t{state}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from ..loom import run_and_wait

    given: Any = options.input
    if options.json_input:
        try:
            given = json.loads(given)
        except ValueError:
            raise Unusable("the input is not JSON") from None
    with _connect(options) as client:
        if options.no_wait:
            run = client.run(options.loom, given).run
            if run is not None:
                _print_run(options, run)
            return 0
        follower = _Follower(options)
        with follower:
            run_and_wait(
                client, options.loom, given, on_action=_ask, on_update=follower.update, timeout=options.timeout
            )
    return 0


def _runs(options: argparse.Namespace) -> int:
    with _connect(options) as client:
        for run in client.list_runs(options.loom):
            _print_run(options, run)
    return 0


def _answer(options: argparse.Namespace) -> int:
    from ..loom import wait_for_run

    with _connect(options) as client:
        follower = _Follower(options)
        with follower:
            wait_for_run(client, options.run_id, on_action=_ask, on_update=follower.update, timeout=options.timeout)
    return 0


def _artifacts(options: argparse.Namespace) -> int:
    with _connect(options) as client:
        if options.artifact_id is not None:
            artifact = client.get_artifact(options.artifact_id)
            if artifact is None:
                raise Unusable(f"there is no artifact {options.artifact_id!r}")
            if options.json:
                _print(options, artifact.raw, "")
            else:
                print(json_text(artifact.data, sys.stdout, indent=2))
            return 0
        for artifact in client.list_artifacts(loom_name=options.loom, stage_name=options.stage):
            line = f"{artifact.id}\t{artifact.loom_name}/{artifact.stage_name}\trevision {artifact.revision}"
            _print(options, artifact.raw, line)
    return 0


def _steer(options: argparse.Namespace) -> int:
    with _connect(options) as client:
        if options.command == "cancel":
            client.cancel_run(options.run_id)
        elif options.command == "pause":
            client.pause_run(options.run_id)
        else:
            run = client.get_run(options.run_id)
            if run.revision is None:
                raise Unusable(f"run {run.run_id} has no revision: it cannot be resumed")
            client.resume_run(run.run_id, run.revision)
        _print_run(options, client.get_run(options.run_id))
    return 0


def _worker(options: argparse.Namespace) -> int:
    from ..loom import LoomWorker

    execute = load(options.execute, "execute")
    if not callable(execute):
        raise Unusable(f"{options.execute!r} is a {type(execute).__name__}, must be a function of a task")
    log_to_stderr(logging.WARNING if options.quiet else logging.INFO)
    with _connect(options) as client:
        worker = LoomWorker(
            client,
            execute,
            agents=options.agent,
            loom_name=options.loom,
            store=options.store,
            on_task=_say_task,
            on_done=_say_done,
        )
        worker.run_forever(grace=options.grace)
    return 0


def _say_task(task: LoomTask) -> None:
    _say(f"task {task.call_id} (run {task.run_id}, agent {task.agent_id}): claimed")


def _say_done(task: LoomTask, error: Optional[LoomError]) -> None:
    _say(f"task {task.call_id}: {'done' if error is None else error}")


# ------------------------------------------------------------------------------------------- the terminal


def _ask(run: LoomRun, action: PendingAction) -> Optional[Answer]:
    """Ask a person here; `None` if the input ended: whoever does not answer has not said no."""
    from ..loom import SKIP, Confirmation

    try:
        if action.is_confirmation:
            _say(action.context or "Please confirm.")
            if _yes("Confirm? [y/n] "):
                return True
            return Confirmation(False, _line("What is to change? (empty: nothing to add) ").strip() or None)
        said: dict[str, Any] = {}
        for question in action.questions:
            said[question.id] = _ask_one(question) or SKIP
        return said
    except EOFError:
        _say(f"\nnot answered: run {run.run_id} waits; `mantyx-sync loom answer {run.run_id}` asks again")
        return None


def _ask_one(question: Question) -> str:
    _say(question.question + (f"\n  {question.description}" if question.description else ""))
    for number, option in enumerate(question.options, 1):
        _say(f"  {number}) {option.label}" + (f" - {option.description}" if option.description else ""))
    what = "Number or answer" if question.options else "Answer"
    while True:
        said = _line(f"{what} (empty: skip): " if question.is_skippable else f"{what}: ").strip()
        if said.isdecimal() and 1 <= int(said) <= len(question.options):
            return question.options[int(said) - 1].label
        if said or question.is_skippable:
            return said


def _yes(prompt: str) -> bool:
    while True:
        said = _line(prompt).strip().lower()
        if said in ("y", "yes", "n", "no"):
            return said[0] == "y"


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    return input()


def _say(text: str) -> None:
    note(plain(text))  # a workflow wrote it


class _Follower:
    """Prints a run whenever it has changed; says, when it is left to itself, how to come back to it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._run: Optional[LoomRun] = None

    def update(self, run: LoomRun) -> None:
        """Print a run."""
        self._run = run
        _print_run(self._options, run)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is not None and self._run is not None and not self._run.is_terminal:
            run_id = self._run.run_id
            _say(f"\nrun {run_id} goes on; `mantyx-sync loom answer {run_id}` follows it, `… cancel {run_id}` stops it")


def _print_run(options: argparse.Namespace, run: LoomRun) -> None:
    waits = run.pending_action or run.pending_agent_call
    parts = [run.run_id, run.loom_name or "", run.status, str(run.cursor or "")]
    if waits is not None:
        parts.append(f"waits for {'an answer' if run.pending_action else 'an agent'} ({waits.id})")
    if run.last_error is not None:
        parts.append(run.last_error.code)
    if run.historical:
        parts.append("historical")
    _print(options, run.raw, "\t".join(parts))


def _print(options: argparse.Namespace, raw: Mapping[str, Any], line: str) -> None:
    print(json_text(dict(raw), sys.stdout) if options.json else plain(line), flush=True)
