"""`mantyx-sync spacefix …`: serve an agent that a module of the caller's defines."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING, Any

from .loading import Unusable, load
from .parsing import add_command, log_to_stderr, seconds
from .streams import json_text

if TYPE_CHECKING:
    from ..spacefix import Agent

__all__ = ["add_commands"]


def add_commands(groups: Any) -> None:
    """Add the group of commands to the parser's."""
    group = groups.add_parser(
        "spacefix",
        help="serve functions to MCP clients through the SpaceFix gateway",
        description="Serve functions to MCP clients through the SpaceFix gateway.",
        epilog="examples:\n  mantyx-sync spacefix check shop:agent\n  mantyx-sync spacefix serve shop:agent\n\n"
        "exit codes: 0 done, 1 failed, 2 arguments that cannot be used",
    )
    commands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve = add_command(
        commands,
        "serve",
        _serve,
        "connect an agent and serve until a signal comes",
        details="The signal is SIGTERM or Ctrl-C. The gateway and the key are those the agent was made\n"
        "with, else SPACEFIX_URL and SPACEFIX_AGENT_KEY.",
        examples="mantyx-sync spacefix serve shop:agent",
    )
    _add_agent(serve)
    serve.add_argument(
        "--grace", type=seconds, default=10.0, metavar="SECONDS", help="how long calls at work may go on (default: 10)"
    )
    serve.add_argument("--quiet", action="store_true", help="log warnings and errors only")
    check = add_command(
        commands,
        "check",
        _check,
        "check what an agent serves, without connecting",
        details="Checks tools, resources and prompts as the gateway would, and prints the registration.",
        examples="mantyx-sync spacefix check shop:agent",
    )
    _add_agent(check)


def _add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "agent",
        metavar="MODULE:AGENT",
        help="the agent, or a function without arguments that returns it; without a name 'agent' is taken",
    )
    parser.set_defaults(tells_apart=False)


def _serve(options: argparse.Namespace) -> int:
    log_to_stderr(logging.WARNING if options.quiet else logging.INFO)
    _load_agent(options.agent).run_forever(grace=options.grace)
    return 0


def _check(options: argparse.Namespace) -> int:
    print(json_text(_load_agent(options.agent).check(), sys.stdout, indent=2))
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
