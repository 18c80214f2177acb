"""`mantyx-sync serve`: the embedded server, for programs in any language and for a look around."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from ..checks import closest
from .loading import Unusable, load
from .parsing import add_command
from .serving import port_number, serve, take_program

if TYPE_CHECKING:
    from ..local import Model
    from ..local.faults import Effect, Fault

__all__ = ["add_commands"]

KEY_VARIABLE = "OPENAI_API_KEY"


def add_commands(groups: Any) -> None:
    """Add the command to the parser's subparsers."""
    command = add_command(
        groups,
        "serve",
        _serve,
        "serve the API on this machine, without an account",
        words="[-- COMMAND ...]",
        details="Prints the variables that point a client at it, and serves until Ctrl-C or SIGTERM. With a\n"
        "command behind --, runs it with these variables set, and ends with its exit code.\n\n"
        "The model is a small one of rules that uses tools but knows nothing, a script, or one behind\n"
        "any server that speaks chat completions (its key is taken from OPENAI_API_KEY, if it is set).",
        examples="""
        mantyx-sync serve
        mantyx-sync serve -- python my_program.py
        mantyx-sync serve --script turns.json --fault stream:cut=300 -- pytest
        mantyx-sync serve --openai http://127.0.0.1:11434/v1 --model-name qwen3 --port 8787
        mantyx-sync serve --gateway
        """,
    )
    model = command.add_mutually_exclusive_group()
    model.add_argument("--model", choices=("rule",), help="a built-in model (default: rule)")
    model.add_argument("--script", metavar="FILE", help="what the model says: JSON, or Python that sets script")
    model.add_argument("--openai", metavar="URL", help="a model behind chat completions, by the API's root")
    model.add_argument("--gateway", action="store_true", help="serve a SpaceFix gateway with one project instead")
    command.add_argument("--model-name", metavar="NAME", help="the model's name, for --openai")
    command.add_argument("--key-env", metavar="NAME", help=f"the variable with its key (default: {KEY_VARIABLE})")
    command.add_argument(
        "--tool",
        action="append",
        metavar="MODULE:NAME",
        help="a function that answers platform tools of its name; may be repeated",
    )
    command.add_argument("--rate-limits", action="store_true", help="keep the platform's limits on requests")
    command.add_argument(
        "--fault",
        action="append",
        type=_fault,
        metavar="ROUTE:WHAT",
        help="something that goes wrong once: stream:cut=300, create:rate_limited=2, any:status=503, "
        "tool_results:lose_answer, ...; x3 behind it: three times; may be repeated",
    )
    command.add_argument("--port", type=port_number, default=0, help="the port (default: a free one)")
    take_program(command)


def _serve(options: argparse.Namespace) -> int:
    if options.gateway:
        return _serve_gateway(options)
    if options.openai is None and (options.model_name or options.key_env):
        raise Unusable("--model-name and --key-env are for --openai")
    from ..local import DOCUMENTED_RATE_LIMITS, LocalServer

    server = LocalServer(
        _model(options),
        port=options.port,
        faults=options.fault,
        rate_limits=DOCUMENTED_RATE_LIMITS if options.rate_limits else None,
        tools=_tools(options.tool or ()),
    )
    with _started(server):
        return serve(options.program, server.environment(), f"an embedded server at {server.url}")


def _serve_gateway(options: argparse.Namespace) -> int:
    for name in ("model_name", "key_env", "tool", "rate_limits", "fault"):
        if getattr(options, name):
            raise Unusable(f"--{name.replace('_', '-')} has no place beside --gateway")
    from ..local import LocalGateway

    gateway = LocalGateway(port=options.port)
    with _started(gateway):
        project = gateway.add_project("local")
        values = {
            "SPACEFIX_URL": gateway.url,
            "SPACEFIX_AGENT_KEY": project.agent_key,
            "SPACEFIX_MCP_URL": project.mcp_url,
            "SPACEFIX_CLIENT_KEY": project.client_key,
        }
        return serve(options.program, values, f"an embedded SpaceFix gateway at {gateway.url}")


def _started(server: Any) -> Any:
    try:
        return server.start()
    except OSError as error:
        raise Unusable(str(error)) from None


def _model(options: argparse.Namespace) -> Model:
    from ..local import OpenAICompatibleModel, RuleModel

    try:
        if options.script is not None:
            from ..local.script_files import model_of_file

            return model_of_file(options.script)
        if options.openai is None:
            return RuleModel()
        if options.model_name is None:
            raise Unusable("--openai needs the model's name: --model-name NAME")
        return OpenAICompatibleModel(options.openai, options.model_name, _key(options.key_env))
    except ValueError as error:
        raise Unusable(str(error)) from None


def _key(variable: str | None) -> Optional[str]:
    key = os.environ.get(variable or KEY_VARIABLE)
    if variable is not None and not key:
        raise Unusable(f"--key-env: the variable {variable} is not set")
    return key


def _tools(places: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place in places:
        function = load(place, "")
        if not callable(function):
            raise Unusable(f"--tool: {place!r} is a {type(function).__name__}, must be a function")
        found[str(getattr(function, "name", None) or getattr(function, "__name__", place))] = function
    return found


# ------------------------------------------------------------------------------------------------ faults


def _fault(text: str) -> Fault:
    """Read `ROUTE:WHAT[=NUMBER][xTIMES]`."""
    from ..local.faults import Fault
    from ..local.routes import ROUTES

    route, colon, rest = text.partition(":")
    what, _, value = rest.partition("=")
    times = 1
    for part in (value, what):
        head, cross, count = part.rpartition("x")
        if cross and count.isdigit():
            times = int(count)
            what, value = (what, head) if part is value else (head, value)
            break
    kinds = _kinds()
    routes = ["any", *(entry.name for entry in ROUTES)]
    if not colon or route not in routes:
        raise argparse.ArgumentTypeError(f"there is no route {route!r}{_meant(route, routes)}")
    if what not in kinds:
        raise argparse.ArgumentTypeError(f"there is no fault {what!r}{_meant(what, kinds)}")
    if value and not value.isdigit():
        raise argparse.ArgumentTypeError(f"{what}: got {value!r}, must be a number")
    effect = kinds[what](int(value) if value else None)
    return Fault(effect, None if route == "any" else route, times=times)


def _kinds() -> Mapping[str, Callable[[Optional[int]], Effect]]:
    from ..local import faults

    return {
        "cut": lambda n: faults.cut(300 if n is None else n),
        "reset": lambda n: faults.cut(300 if n is None else n, how="rst"),
        "silent": lambda n: faults.silent(n or 0),
        "drop": lambda _: faults.drop(),
        "lose_answer": lambda _: faults.lose_answer(),
        "rate_limited": lambda n: faults.rate_limited(1 if n is None else n),
        "status": lambda n: faults.answer(n or 503, {"error": "fault", "message": "A fault that was asked for."}),
        "keep_open": lambda _: faults.keep_open(),
        "close_after": lambda _: faults.close_after(),
        "pieces": lambda n: faults.pieces(n or 1),
    }


def _meant(given: str, known: Any) -> str:
    near = closest(given, known)
    return f"; did you mean {near!r}?" if near else f" (there are: {', '.join(known)})"
