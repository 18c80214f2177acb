"""The tools that a command offers: functions named on the command line, and MCP servers."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from typing import Any, Sequence
from urllib.parse import urlsplit

from .loading import Unusable, load

__all__ = ["add_tool_options", "tools_of"]

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9_]{1,64})=(?P<rest>.*)", re.S)
_OTHERS = re.compile(r"[^A-Za-z0-9_]+")
# What starts a program but does not name it.
_STARTERS = re.compile(r"(python[0-9.]*|node|npx|uvx?|pipx|run|tool|env|docker|deno|bunx?)(\.exe)?", re.I)


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that offer tools."""
    group = parser.add_argument_group("tools")
    group.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a function, a tool, or a list of them; MODULE alone: its tools. May be repeated",
    )
    group.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="COMMAND|URL",
        help="an MCP server: the command line that starts it, or its address; NAME=… names it. May be repeated",
    )
    group.add_argument(
        "--mcp-env", action="append", default=[], metavar="NAME", help="a variable to hand on to MCP servers' programs"
    )


def tools_of(options: argparse.Namespace) -> list[Any]:
    """Return the tools that the options name. Imports modules of the caller's; connects to nothing.

    Raises:
        Unusable: A place names no tool, or an MCP server cannot be one.
    """
    found = [tool for place in options.tool for tool in _load(place)]
    if options.mcp:
        found += _servers(options.mcp, options.mcp_env)
    elif options.mcp_env:
        raise Unusable("--mcp-env needs --mcp")
    return found


def _load(place: str) -> list[Any]:
    module, _, name = place.partition(":")
    if not module.strip():
        raise Unusable(f"--tool {place!r} is not of the form module:name")
    if name:
        value = load(place, name)
        if isinstance(value, (list, tuple)):
            if not value:
                raise Unusable(f"--tool {place!r} is empty, must be a function, a tool or a list of them")
            return list(value)
        if isinstance(value, type) or not (callable(value) or hasattr(value, "to_wire") or isinstance(value, dict)):
            kind = "a class" if isinstance(value, type) else f"of type {type(value).__name__}"
            raise Unusable(f"--tool {place!r} is {kind}, must be a function, a tool or a list of them")
        return [value]
    marked = load(f"{module}:__dict__", "__dict__")
    found = {id(value): value for key, value in marked.items() if not key.startswith("_") and _is_tool(value)}
    if not found:
        raise Unusable(f"--tool {module!r}: the module has no function marked with @tool; name one: {module}:function")
    return list(found.values())


def _is_tool(value: object) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "to_wire", None)) and hasattr(value, "kind")


def _servers(places: Sequence[str], variables: Sequence[str]) -> list[Any]:
    from ..mcp.ref import define_local_mcp

    missing = [name for name in variables if name not in os.environ]
    if missing:
        raise Unusable(f"--mcp-env {missing[0]}: there is no such variable")
    env = {name: os.environ[name] for name in variables} or None
    found: list[Any] = []
    names: set[str] = set()
    for place in places:
        named = _NAMED.fullmatch(place)
        name, what = (named["name"], named["rest"]) if named else (None, place)
        if what.lower().startswith(("http://", "https://")):
            name = name or _free(_name_of(_host_of(what)), names)
            found.append(define_local_mcp(name=name, url=what))
        else:
            command = _split(what, place)
            name = name or _free(_program_of(command), names)
            found.append(define_local_mcp(name=name, command=command, env=env))
        names.add(name)
    return found


def _split(text: str, place: str) -> list[str]:
    try:
        command = shlex.split(text, posix=os.name != "nt")
    except ValueError as error:
        raise Unusable(f"--mcp {place!r} is no command line: {error}") from None
    if not command:
        raise Unusable(f"--mcp {place!r} is empty, must be a command line or an address")
    return command


def _program_of(command: Sequence[str]) -> str:
    """Name a server after the word of its command line that says most."""
    words = [word for word in command if not word.startswith("-")]
    telling = next((word for word in words if not _STARTERS.fullmatch(os.path.basename(word))), command[0])
    return _name_of(re.sub(r"\.(py|js|ts|exe)$", "", os.path.basename(telling.rstrip("/\\"))))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # whoever makes the server says what is wrong
        return ""


def _name_of(text: str) -> str:
    return _OTHERS.sub("_", text).strip("_")[:48] or "server"


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
