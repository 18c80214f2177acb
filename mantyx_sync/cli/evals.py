"""`mantyx-sync evals …`: data sets, and agents measured by them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Mapping, Optional

from ..display.terminal import is_terminal, plain
from ..display.wording import count, milliseconds, percent, plural, when
from .asking import DEFAULT_SYSTEM_PROMPT, add_spec_options, fields_of, json_file, needs_system_prompt
from .connecting import add_client_options, connect
from .exits import FAILED, OK
from .listings import add_limit, limited, page_size
from .loading import Unusable
from .offering import add_tool_options, tools_of
from .parsing import add_command, add_json_option, add_noise_options, log_shown, share, time_limit
from .screen import Screen
from .tables import Table, print_json, print_pairs

if TYPE_CHECKING:
    from ..eval_results import EvalRunDetail, EvalRunEvent, EvalRunSummary

__all__ = ["add_commands"]

_RUN_EXAMPLES = """
mantyx-sync evals run --dataset ds_1 --agent agent_7
mantyx-sync evals run --cases cases.json -s "You help customers." --tool shop:get_order
mantyx-sync evals run --dataset ds_1 --agent agent_7 --min-passed 90% || echo below
"""


def add_commands(groups: Any) -> None:
    """Add the commands to the parser's subparsers."""
    group = groups.add_parser(
        "evals",
        help="list data sets and evals, run evals, compare them",
        description="List data sets and evals, run evals, compare them.",
        epilog="example:\n  mantyx-sync evals run --dataset ds_1 --agent agent_7 --min-passed 90%\n",
    )
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = _add(
        commands, "datasets", _datasets, "list data sets, or the cases of one", "mantyx-sync evals datasets ds_1"
    )
    command.add_argument("dataset_id", nargs="?", metavar="DATASET", help="show the cases of this one")

    command = _add(commands, "list", _list, "list evals, newest first", "mantyx-sync evals list --status failed")
    command.add_argument("--dataset", metavar="ID", help="only evals over this data set")
    command.add_argument("--agent", metavar="ID", help="only evals of this agent")
    command.add_argument("--status", metavar="STATUS", help="queued, running, succeeded, failed or cancelled")
    add_limit(command)

    command = _add(commands, "show", _show, "show an eval with its cases", "mantyx-sync evals show eval_1 --failed")
    command.add_argument("eval_id", metavar="EVAL")
    command.add_argument("--failed", action="store_true", help="only the cases that did not pass")

    command = _add(
        commands,
        "run",
        _run,
        "run an eval to its end",
        _RUN_EXAMPLES,
        words="(--dataset ID | --cases FILE)",
        details="Exit code 0 if enough cases passed, 1 if not. Ctrl-C cancels the eval.\n"
        'A file of cases holds {"cases": [{"input": {"prompt": …}, "scorers": […]}]}, or the list alone.',
    )
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset", metavar="ID", help="a data set of the workspace")
    source.add_argument("--cases", metavar="FILE", help="a JSON file with cases of your own")
    command.add_argument(
        "--min-passed", type=share, default=1.0, metavar="SHARE", help="how many have to pass: 0.9, 90%% (default: all)"
    )
    command.add_argument("--timeout", type=time_limit, metavar="SECONDS", help="cancel the eval after so long")
    add_noise_options(command, quiet="leave out progress", verbose="log what happens")
    add_tool_options(command)
    add_spec_options(command, with_turn=False)

    command = _add(
        commands, "compare", _compare, "compare two evals case by case", "mantyx-sync evals compare eval_1 eval_2"
    )
    command.add_argument("eval_a", metavar="EVAL")
    command.add_argument("eval_b", metavar="EVAL")

    command = _add(commands, "cancel", _cancel, "stop an eval", "mantyx-sync evals cancel eval_1")
    command.add_argument("eval_id", metavar="EVAL")


def _add(
    commands: Any, name: str, run: Any, what: str, examples: str, *, words: str | None = None, details: str = ""
) -> argparse.ArgumentParser:
    command = add_command(commands, name, run, what, examples=examples, details=details, words=words)
    add_json_option(command)
    add_client_options(command)
    return command


def _datasets(options: argparse.Namespace) -> int:
    with connect(options) as client:
        if options.dataset_id is None:
            sets = client.list_eval_datasets()
            rows = ((d.raw, (d.id, str(d.case_count), str(d.run_count), d.name, d.description)) for d in sets)
            columns = ("DATA SET", "CASES", "EVALS", "NAME", "ABOUT")
            Table(columns, is_json=options.json).print(rows, "there are no data sets")
            return OK
        found = client.get_eval_dataset(options.dataset_id)
        cases = ((c.raw, (c.id, c.name, _scorers(c.scorers), _said(c.input))) for c in found.cases)
        Table(("CASE", "NAME", "SCORERS", "INPUT"), is_json=options.json).print(cases, "the data set has no cases")
    return OK


def _list(options: argparse.Namespace) -> int:
    with connect(options) as client:
        page = client.list_eval_runs(
            dataset_id=options.dataset, agent_id=options.agent, status=options.status, limit=page_size(options)
        )
        rows = (
            (
                found.raw,
                (
                    found.id,
                    found.status,
                    when(found.created_at),
                    f"{found.passed_cases}/{found.total_cases}",
                    percent(found.score),
                    found.agent_id or ("inline" if found.inline_agent else None),
                    found.dataset_name or found.dataset_id,
                ),
            )
            for found in limited(options, page)
        )
        columns = ("EVAL", "STATUS", "CREATED (UTC)", "PASSED", "SCORE", "AGENT", "DATA SET")
        Table(columns, is_json=options.json, optional=(5, 2, 4)).print(rows, "there are no such evals")
    return OK


def _show(options: argparse.Namespace) -> int:
    with connect(options) as client:
        found = client.get_eval_run(options.eval_id)
        if options.json:
            print_json(found.raw)
            return OK
        print_pairs(_about(found))
        print()
        _print_cases(found, only_failed=options.failed)
    return OK


def _run(options: argparse.Namespace) -> int:
    screen = Screen(is_quiet=options.quiet)
    with screen, screen.taking_prints(), log_shown(is_verbose=options.verbose):
        fields = _fields(options, tools_of(options))
        progress = _Progress(screen)
        with connect(options) as client:
            try:
                found = client.run_eval(on_event=progress.take, timeout=options.timeout, **fields)
            except KeyboardInterrupt:
                screen.print_line(f"interrupted: eval {progress.run_id or ''} was asked to stop")
                raise
            finally:
                screen.block(())
    is_enough = found.status == "succeeded" and _passed(found) >= options.min_passed
    if options.json:
        print_json(found.raw)
    else:
        print_pairs(_about(found))
        if found.passed_cases < found.total_cases:
            print()
            _print_cases(found, only_failed=True)
    return OK if is_enough else FAILED


def _fields(options: argparse.Namespace, tools: list[Any]) -> dict[str, Any]:
    given = fields_of(options, ())
    found: dict[str, Any] = {"tools": tools} if tools else {}
    if options.dataset is not None:
        found["dataset_id"] = options.dataset
    else:
        cases = json_file(options.cases, "--cases")
        found["dataset"] = {"cases": cases} if isinstance(cases, list) else cases
    agent_id = given.pop("agent_id", None)
    if agent_id is None:
        if needs_system_prompt(given):
            given["system_prompt"] = DEFAULT_SYSTEM_PROMPT
        return {**found, "agent": given}
    found["agent_id"] = agent_id
    if "model_id" in given:
        found["model_id"] = given.pop("model_id")
    overrides = {name: given.pop(name) for name in ("system_prompt", "reasoning_level") if name in given}
    if overrides:
        found["overrides"] = overrides
    if given:
        raise Unusable(f"{', '.join(sorted(given))}: cannot be changed of an agent of the workspace for an eval")
    return found


class _Progress:
    """Tells how an eval gets on: a line for each case, and how many there are."""

    def __init__(self, screen: Screen) -> None:
        self.run_id: Optional[str] = None
        self._screen = screen

    def take(self, event: EvalRunEvent) -> None:
        """Take an event of the eval's stream."""
        data, screen, style = event.data, self._screen, self._screen.style
        run_id = data.get("runId")
        if isinstance(run_id, str):
            self.run_id = run_id
        done, total, passed = (data.get(name) for name in ("completedCases", "totalCases", "passedCases"))
        if event.type == "case_completed":
            good = data.get("passed") is True
            sign = style.green(screen.glyphs.done) if good else style.red(screen.glyphs.failed)
            name = str(data.get("caseName") or data.get("caseId") or "")
            why = f": {data['error']}" if isinstance(data.get("error"), str) else ""
            screen.line(f"{sign} {plain(name + why, one_line=True)[: screen.width - 2]}")
        if isinstance(done, int) and isinstance(total, int):
            text = f"{done} of {plural(total, 'case')}, {passed} passed"
            screen.block([f"{style.cyan(screen.glyphs.active)} {style.dim(text)}"])


def _compare(options: argparse.Namespace) -> int:
    with connect(options) as client:
        found = client.compare_eval_runs(options.eval_a, options.eval_b)
        if options.json:
            print_json(found.raw)
            return OK
        print_pairs((("A", _brief(found.run_a)), ("B", _brief(found.run_b)), ("data set", found.dataset_name)))
        print()
        rows = ((c.raw, (c.case_name or c.case_id, _verdict(c.a), _verdict(c.b), c.change)) for c in found.cases)
        Table(("CASE", "A", "B", "CHANGE"), flexible=0).print(rows, "they have no cases")
    return OK


def _cancel(options: argparse.Namespace) -> int:
    with connect(options) as client:
        client.cancel_eval_run(options.eval_id)
        status = client.get_eval_run(options.eval_id).status
        if options.json:
            print_json({"runId": options.eval_id, "status": status})
        else:
            print(f"{options.eval_id}\t{status}")
    return OK


# ------------------------------------------------------------------------------------------- words


def _about(found: EvalRunDetail) -> tuple[tuple[str, Any], ...]:
    return (
        ("eval", found.id),
        ("status", found.status),
        ("error", found.error),
        ("data set", found.dataset_name or found.dataset_id),
        ("agent", found.agent_id),
        ("passed", f"{count(found.passed_cases)} of {count(found.total_cases)}"),
        ("score", percent(found.score)),
    )


def _print_cases(found: EvalRunDetail, *, only_failed: bool) -> None:
    rows = [
        (
            case.raw,
            (
                "passed" if case.passed else "failed",
                case.case.name or case.case_id,
                percent(case.score),
                milliseconds(case.latency_ms),
                case.error or case.final_text,
            ),
        )
        for case in found.results
        if not (only_failed and case.passed)
    ]
    Table(("VERDICT", "CASE", "SCORE", "TOOK", "ANSWER"), optional=(3, 2)).print(rows, "no case failed")


def _passed(found: EvalRunSummary) -> float:
    return found.passed_cases / found.total_cases if found.total_cases else 1.0


def _brief(found: EvalRunSummary) -> str:
    return f"{found.id}, {found.passed_cases} of {found.total_cases} passed, score {percent(found.score) or '-'}"


def _verdict(side: Optional[Mapping[str, Any]]) -> str:
    if side is None:
        return "-"
    score = side.get("score")
    shown = f" ({percent(score)})" if isinstance(score, (int, float)) else ""
    return ("passed" if side.get("passed") else "failed") + shown


def _scorers(scorers: tuple[Mapping[str, Any], ...]) -> str:
    return ", ".join(str(scorer.get("type") or "?") for scorer in scorers)


def _said(given: Mapping[str, Any]) -> str:
    text = given.get("prompt") or given.get("content") or given
    return plain(str(text)) if is_terminal(sys.stdout) else str(text)
