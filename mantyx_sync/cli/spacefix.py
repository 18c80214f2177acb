"""`mantyx-sync spacefix …`: serve an agent that a module of the caller's defines."""

from __future__ import annotations

import argparse
import json
import logging
from typing import TYPE_CHECKING, Any

from .loading import Unusable, load
from .parsing import log_to_stderr, seconds

if TYPE_CHECKING:
    from ..spacefix import Agent

__all__ = ["add_commands"]


def add_commands(groups: Any) -> None:
    """Add the group of commands to the parser's."""
    group = groups.add_parser("spacefix", help="serve functions to MCP clients through the SpaceFix gateway")
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve = commands.add_parser(
        "serve",
        help="connect an agent and serve until a signal comes",
        description="Connect the agent that a module defines and serve until SIGTERM or Ctrl-C. The gateway and the "
        "key are those the agent was made with, else SPACEFIX_URL and SPACEFIX_AGENT_KEY.",
    )
    _add_agent(serve)
    serve.add_argument(
        "--grace", type=seconds, default=10.0, metavar="SECONDS", help="how long calls at work may go on (default: 10)"
    )
    serve.add_argument("--quiet", action="store_true", help="log warnings and errors only")
    serve.set_defaults(run=_serve)
    check = commands.add_parser(
        "check",
        help="check what an agent serves, without connecting",
        description="Check an agent's tools, resources and prompts as the gateway would, and print the registration.",
    )
    _add_agent(check)
    check.set_defaults(run=_check)


def _add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "agent",
        metavar="MODULE:AGENT",
        help="the agent, or a function without arguments that returns it; without a name 'agent' is taken",
    )


def _serve(options: argparse.Namespace) -> int:
    log_to_stderr(logging.WARNING if options.quiet else logging.INFO)
    _load_agent(options.agent).run_forever(grace=options.grace)
    return 0


def _check(options: argparse.Namespace) -> int:
    print(json.dumps(_load_agent(options.agent).check(), indent=2, ensure_ascii=False))
    return 0


def _load_agent(place: str) -> Agent:
    from ..spacefix import Agent

    value = load(place, "agent")
    if not isinstance(value, Agent) and callable(value) and not isinstance(value, type):
        try:
            value = value()
        except TypeError as error:
            raise Unusable(f"{place!r} cannot be called without arguments: {error}") from None
    if not isinstance(value, Agent):
        raise Unusable(f"{place!r} is of type {type(value).__name__}, not an Agent of mantyx_sync.spacefix")
    return value
