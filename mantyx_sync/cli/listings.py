"""`mantyx-sync models`, `runs` and `sessions`: what there is in the workspace."""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, TypeVar

from ..display.terminal import is_terminal, plain
from ..display.wire_words import tool_names
from ..display.wording import count, milliseconds, money, spent, when
from .connecting import add_client_options, connect
from .exits import OK
from .loading import Unusable
from .parsing import add_command, add_json_option, key_value, positive
from .tables import Table, print_json, print_pairs

if TYPE_CHECKING:
    from ..results import RunSnapshot, RunSummary

__all__ = ["add_commands", "add_limit", "limited", "page_size"]

T = TypeVar("T")
_PAGE = 200
_LIMIT = 20
_STATUSES = ("queued", "running", "succeeded", "failed", "cancelled")


def add_commands(groups: Any) -> None:
    """Add the commands to the parser's subparsers."""
    command = add_command(groups, "models", _models, "list the models that runs can use", examples="mantyx-sync models")
    add_json_option(command)
    add_client_options(command, with_local=True)

    command = add_command(
        groups,
        "runs",
        _runs,
        "list runs, or show one",
        words="[RUN]",
        details="Columns in a pipe, separated by tabs: id, status, created, model, turns, tokens out,\n"
        "duration, prompt.",
        examples="""
        mantyx-sync runs
        mantyx-sync runs --status failed --metadata customer=acme --all
        mantyx-sync runs run_7f3
        mantyx-sync runs run_7f3 --text > answer.txt
        mantyx-sync runs --status running --all | cut -f1 | xargs mantyx-sync cancel
        """,
    )
    command.add_argument("run_id", nargs="?", metavar="RUN", help="show this one, with what it was told and answered")
    command.add_argument("--text", action="store_true", help="print the answer of RUN alone")
    command.add_argument("--status", choices=_STATUSES, metavar="STATUS", help=f"only these: {', '.join(_STATUSES)}")
    command.add_argument("--model", metavar="ID", help="only those with this model")
    command.add_argument("--agent", metavar="ID", help="only those of this agent")
    _add_metadata(command)
    add_limit(command)
    add_json_option(command)
    add_client_options(command)

    command = add_command(
        groups,
        "sessions",
        _sessions,
        "list sessions, show the conversation of one, or end it",
        words="[SESSION]",
        details="Columns in a pipe, separated by tabs: id, status, created, last used, first prompt.",
        examples="""
        mantyx-sync sessions --status active
        mantyx-sync sessions ses_1
        mantyx-sync sessions ses_1 --end
        mantyx-sync chat --session ses_1
        """,
    )
    command.add_argument("session_id", nargs="?", metavar="SESSION", help="show the conversation of this one")
    command.add_argument("--end", action="store_true", help="end SESSION; a run of it is cancelled")
    command.add_argument("--status", choices=("active", "ended"), metavar="STATUS", help="only these: active, ended")
    _add_metadata(command)
    add_limit(command)
    add_json_option(command)
    add_client_options(command)


def _add_metadata(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--metadata",
        action="append",
        type=key_value,
        default=[],
        metavar="KEY=VALUE",
        help="only those with this; may be repeated",
    )


def add_limit(command: argparse.ArgumentParser) -> None:
    """Add the options that say how much of a listing is wanted."""
    group = command.add_mutually_exclusive_group()
    group.add_argument(
        "--limit", type=positive, default=_LIMIT, metavar="N", help=f"at most so many (default: {_LIMIT})"
    )
    group.add_argument("--all", action="store_true", help="all of them")


def limited(options: argparse.Namespace, items: Iterable[T]) -> Iterator[T]:
    """Yield as many items as are wanted; pages behind them are not fetched."""
    return iter(items) if options.all else itertools.islice(items, options.limit)


def page_size(options: argparse.Namespace) -> int:
    """Return how many items to ask for at once."""
    return _PAGE if options.all else min(_PAGE, options.limit)


# ------------------------------------------------------------------------------------------- models


def _models(options: argparse.Namespace) -> int:
    with connect(options) as client:
        catalog = client.list_models()
        rows = (
            (
                {**model.raw, "isDefault": model.id == catalog.default_model_id},
                (
                    model.id,
                    "default" if model.id == catalog.default_model_id else "",
                    model.label,
                    count(model.context_window_tokens) or "",
                    (money(model.pricing.input_per_1m_usd) if model.pricing else None) or "",
                    (money(model.pricing.output_per_1m_usd) if model.pricing else None) or "",
                ),
            )
            for model in catalog
        )
        columns = ("MODEL", "", "NAME", "CONTEXT", "$/M IN", "$/M OUT")
        Table(columns, is_json=options.json, flexible=2, optional=(5, 4, 3)).print(rows, "the workspace has no models")
    return OK


# ------------------------------------------------------------------------------------------- runs


def _runs(options: argparse.Namespace) -> int:
    if options.text and options.run_id is None:
        raise Unusable("--text needs a run: mantyx-sync runs RUN --text")
    with connect(options) as client:
        if options.run_id is not None:
            _show_run(options, client.get_run(options.run_id))
            return OK
        page = client.list_runs(
            limit=page_size(options),
            status=options.status,
            model_id=options.model,
            agent_id=options.agent,
            metadata=dict(options.metadata) or None,
        )
        columns = ("RUN", "STATUS", "CREATED (UTC)", "MODEL", "TURNS", "TOKENS", "TOOK", "PROMPT")
        rows = ((run.raw, _run_row(run)) for run in limited(options, page))
        table = Table(columns, is_json=options.json, optional=(4, 5, 3, 6, 2))
        table.print(rows, "there are no such runs")
    return OK


def _run_row(run: RunSummary) -> tuple[Optional[str], ...]:
    return (
        run.id,
        run.status,
        when(run.created_at),
        run.model_id,
        None if run.turns is None else str(run.turns),
        None if run.tokens is None else str(run.tokens.output_tokens),
        milliseconds(run.duration_ms),
        run.input_preview,
    )


def _show_run(options: argparse.Namespace, run: RunSnapshot) -> None:
    if options.json:
        print_json(run.raw)
    elif options.text:
        _print_text(run.final_text or "", is_raw=not is_terminal(sys.stdout))
    else:
        reason = run.failure_reason
        spec = run.spec or {}
        print_pairs(
            (
                ("run", run.id),
                ("status", run.status),
                ("error", run.error),
                ("error class", reason and reason.error_class),
                ("session", run.session_id),
                ("created", run.created_at),
                ("completed", run.completed_at),
                ("model", run.model and run.model.id),
                ("turns", run.turns),
                ("tokens", spent(run.tokens)),
                ("metadata", _pairs(run.metadata)),
                ("agent", spec.get("agentId")),
                ("system prompt", spec.get("systemPrompt")),
                ("tools", ", ".join(tool_names(spec))),
                ("prompt", spec.get("prompt") or _last_words(spec.get("messages"))),
            )
        )
        if run.final_text:
            print()
            _print_text(run.final_text)


def _pairs(metadata: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in metadata.items())


def _last_words(messages: object) -> Optional[str]:
    said = [item for item in messages if isinstance(item, Mapping)] if isinstance(messages, list) else []
    return next((str(item.get("content")) for item in reversed(said) if item.get("role") == "user"), None)


def _print_text(text: str, *, is_raw: bool = False) -> None:
    text = text if is_raw else plain(text)  # what is read by people may reach their terminal through a pager
    print(text, end="" if text.endswith("\n") else "\n", flush=True)


# ------------------------------------------------------------------------------------------- sessions


def _sessions(options: argparse.Namespace) -> int:
    if options.end and options.session_id is None:
        raise Unusable("--end needs a session: mantyx-sync sessions SESSION --end")
    with connect(options) as client:
        if options.end:
            client.end_session(options.session_id)
            if options.json:
                print_json({"sessionId": options.session_id, "status": "ended"})
            else:
                print(f"{options.session_id}\tended")
            return OK
        if options.session_id is not None:
            info = client.get_session_info(options.session_id)
            if options.json:
                print_json(info.raw)
                return OK
            print_pairs(
                (
                    ("session", info.id),
                    ("status", info.status),
                    ("created", info.created_at),
                    ("last used", info.last_used_at),
                    ("metadata", _pairs(info.metadata)),
                    ("agent", info.agent_spec.get("agentId")),
                    ("system prompt", info.agent_spec.get("systemPrompt")),
                    ("tools", ", ".join(tool_names(info.agent_spec))),
                )
            )
            for message in info.messages:
                print()
                _print_text(f"{message.get('role')}: {message.get('content')}")
            return OK
        page = client.list_sessions(
            limit=page_size(options), status=options.status, metadata=dict(options.metadata) or None
        )
        rows = (
            (
                session.raw,
                (
                    session.session_id,
                    session.status,
                    when(session.creation_date),
                    when(session.last_interaction_date),
                    session.summary,
                ),
            )
            for session in limited(options, page)
        )
        columns = ("SESSION", "STATUS", "CREATED (UTC)", "LAST USED (UTC)", "ABOUT")
        Table(columns, is_json=options.json, optional=(2, 3)).print(rows, "there are no such sessions")
    return OK
