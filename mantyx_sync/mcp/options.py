"""What a client of an MCP server can be set to: checked when it is made, in one sentence each."""

from __future__ import annotations

import inspect
import os
import pathlib
from dataclasses import dataclass, fields
from typing import Any, Callable, Iterable, Mapping, Optional, Tuple, TypedDict, TypeVar, Union, cast

from .._version import __version__
from ..checks import callbacks, closest, json_copy, kind_of, refusal, seconds, shown, text, whole_number
from .channel import DEFAULT_MAX_MESSAGE_BYTES
from .models import McpLogMessage, McpProgress
from .opening import MODES

__all__ = ["McpOptions", "McpOptionArgs", "show_options"]

F = TypeVar("F", bound=Callable[..., Any])

Root = Union[str, "os.PathLike[str]", Mapping[str, Any]]
OnProgress = Callable[[McpProgress], object]
OnLog = Callable[[McpLogMessage], object]


class McpOptionArgs(TypedDict, total=False):
    """The options of a client as keyword arguments, for `Unpack`."""

    mode: str
    timeout: Optional[float]
    idle_timeout: Optional[float]
    start_timeout: float
    on_progress: Optional[OnProgress]
    on_log: Optional[OnLog]
    on_tools_changed: Optional[Callable[[], object]]
    client_info: Optional[Mapping[str, Any]]
    max_message_bytes: int
    roots: Optional[Iterable[Root]]
    repeat_after_session_end: bool


@dataclass(frozen=True)
class McpOptions:
    """The options of a client.

    Args:
        mode: `"auto"` finds out which era the server speaks; `"handshake"` opens it by `initialize` at once;
            `"stateless"` sends requests without asking first.
        timeout: Seconds for a whole call, starting the server included; `None` sets no limit.
        idle_timeout: Seconds that a call may pass without a message for it; progress begins them anew. `None` sets no
            limit.
        start_timeout: Seconds for starting and opening the server.
        on_progress: Takes the progress of calls that have no such function of their own.
        on_log: Takes the server's log lines.
        on_tools_changed: Called without arguments when the server says that its tools have changed. In the stateless
            era servers say so to those who subscribe, which this client does not: it asks again instead.
        client_info: What the client is called: `name`, `version` and what else the protocol has.
        max_message_bytes: A larger message of the server fails the call.
        roots: Folders and `file://` uris that the server may ask for; `None` tells it that there are none to ask for.
        repeat_after_session_end: Whether a request that was not executed because the server had ended the session, or
            had been restarted, is sent again over a new session. `False` raises `McpSessionGone` for it instead, for
            callers who have to look at what became of the server first; the next request opens the new session.
    """

    mode: str = "auto"
    timeout: Optional[float] = 60.0
    idle_timeout: Optional[float] = None
    start_timeout: float = 30.0
    on_progress: Optional[OnProgress] = None
    on_log: Optional[OnLog] = None
    on_tools_changed: Optional[Callable[[], object]] = None
    client_info: Optional[Mapping[str, Any]] = None
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    roots: Optional[Iterable[Root]] = None
    repeat_after_session_end: bool = True

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise refusal("mode", shown(self.mode), f"be one of {', '.join(map(repr, MODES))}")
        for name in ("timeout", "idle_timeout"):
            if getattr(self, name) is not None:
                seconds(getattr(self, name), name)
        seconds(self.start_timeout, "start_timeout")
        callbacks(on_progress=self.on_progress, on_log=self.on_log, on_tools_changed=self.on_tools_changed)
        whole_number(self.max_message_bytes, "max_message_bytes", 1024)
        if not isinstance(self.repeat_after_session_end, bool):
            raise refusal("repeat_after_session_end", shown(self.repeat_after_session_end), "be True or False")
        object.__setattr__(self, "client_info", _client_info(self.client_info))
        object.__setattr__(self, "roots", None if self.roots is None else _roots(self.roots))

    @property
    def wire_roots(self) -> Optional[Tuple[Mapping[str, Any], ...]]:
        """The roots as the protocol has them."""
        return cast("Optional[Tuple[Mapping[str, Any], ...]]", self.roots)  # made of them by __post_init__

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> McpOptions:
        """Check keyword arguments.

        Raises:
            TypeError: There is no such option.
            MantyxConfigError: A value cannot be used.
        """
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                near = closest(name, known)
                raise TypeError(f"no such option: {name!r}" + (f"; did you mean {near!r}?" if near else ""))
        return cls(**given)


def show_options(target: F) -> F:
    """Show the options in the signature and the help of a function that takes them as `**options`."""
    signature = inspect.signature(target)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    named = inspect.signature(McpOptions).parameters.values()
    more = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in named]
    described = inspect.cleandoc(McpOptions.__doc__ or "").partition("Args:\n")[2].rstrip()
    own_words = inspect.cleandoc(target.__doc__ or "")
    target.__doc__ = own_words.replace("    **options: See `McpOptions`.", described)
    target.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]  # any function
    return target


def _client_info(given: object) -> Mapping[str, Any]:
    if given is None:
        return {"name": "mantyx-sync", "version": __version__}
    if not isinstance(given, Mapping):
        raise refusal("client_info", kind_of(given), "be a mapping with a name and a version")
    info: dict[str, Any] = json_copy(given, "client_info")
    for key in ("name", "version"):
        text(info.get(key), f"client_info.{key}")
    return info


def _roots(given: object) -> tuple[Mapping[str, Any], ...]:
    if isinstance(given, (str, bytes, os.PathLike, Mapping)) or not isinstance(given, Iterable):
        raise refusal("roots", kind_of(given), "be a list of folders, file:// uris or mappings with a uri")
    return tuple(_root(item, f"roots[{i}]") for i, item in enumerate(given))


def _root(given: object, where: str) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        root: dict[str, Any] = json_copy(given, where)
        if not str(root.get("uri")).startswith("file://"):
            raise refusal(f"{where}.uri", shown(root.get("uri")), "be a file:// uri")
        return root
    if isinstance(given, str) and given.startswith("file://"):
        return {"uri": given}
    if isinstance(given, (str, os.PathLike)) and os.fspath(given):
        path = pathlib.Path(os.path.abspath(os.fspath(given)))
        return {"uri": path.as_uri(), "name": path.name or str(path)}
    raise refusal(where, shown(given), "be a folder, a file:// uri or a mapping with a uri")
