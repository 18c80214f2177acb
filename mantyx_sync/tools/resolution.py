"""Tools that live elsewhere: what a ref offers that has to be resolved first, and what holds for all of them (wire §3).

A ref of kind `mcp_local` or `a2a_local` is a recipe: `Resolvable`. Resolving it reaches the server it names and gives a
`Resolved`, a ref in its own right that has a wire form and answers calls. Whoever resolves lends an `Opening`, which
knows how long that may take and closes at the end what was opened. The wings for the two protocols implement the refs;
nothing here or on any floor knows more of them than this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from mantyx_sync.errors import MantyxConfigError

if TYPE_CHECKING:
    from mantyx_sync.tools.registry import Registry

__all__ = [
    "BACKSTOP_S",
    "CALL_TIMEOUT_S",
    "START_TIMEOUT_S",
    "Opening",
    "Resolvable",
    "Resolved",
    "check_collisions",
    "describe_ref",
    "is_resolvable",
]

START_TIMEOUT_S = 30.0
"""How long reaching a server may take unless its ref says otherwise."""

CALL_TIMEOUT_S = 270.0
"""How long a call may take unless its ref says otherwise: less than the platform waits, so that the model hears why."""

BACKSTOP_S = 5.0
"""How much later than its protocol's client a call is given up here: the client has the same limit, and says more when
it is over. This is for one that does not return."""

_WORDS = {"mcp_local": "MCP server", "a2a_local": "A2A agent"}


class Opening(Protocol):
    """What a ref may ask while it is being resolved."""

    @property
    def deadline(self) -> Optional[float]:
        """When it has to be done, in the time of `time.monotonic()`; `None` leaves it to the ref."""
        ...

    def at_end(self, close: Callable[[], None]) -> None:
        """Have `close` called when nobody needs the tools any more, whatever happens.

        Said before opening: a resolution that is given up calls it too, from another thread, so as to end a wait in
        it. It may be called twice. It may take its time; it does not raise.
        """
        ...


class Resolvable(Protocol):
    """A ref that must be resolved before it has a wire form."""

    @property
    def kind(self) -> str:
        """The word that tells the kinds apart on the wire."""
        ...

    @property
    def name(self) -> str:
        """What calls name it by."""
        ...

    def resolve(self, opening: Opening) -> Resolved:
        """Reach the server and return what it offers. Blocks.

        Any number of times and from several threads: each call opens anew, except for what its owner keeps open.

        Raises:
            MantyxError: It cannot be reached, or what it offers cannot be used.
        """
        ...


class Resolved(Protocol):
    """A ref that was resolved: takes the place of its recipe in the list of tools."""

    @property
    def kind(self) -> str:
        """As that of its recipe."""
        ...

    @property
    def name(self) -> str:
        """As that of its recipe."""
        ...

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`."""
        ...

    def register(self, registry: Registry) -> None:
        """Enter who answers its calls in the registry of one conversation: of a run, or of a session's runs."""
        ...


def is_resolvable(tool: object) -> bool:
    """Tell whether an entry of a list of tools has to be resolved."""
    return getattr(tool, "kind", None) in _WORDS and callable(getattr(tool, "resolve", None))


def describe_ref(ref: Any) -> str:
    """Name a ref in a sentence: `MCP server 'fs'`."""
    kind, name = _kind_and_name(ref)
    return f"{_WORDS.get(kind, 'tool')} {name!r}"


def check_collisions(tools: Sequence[Any]) -> None:
    """Refuse names that the model could not tell apart; said of servers, whose catalogs nobody had read before.

    Raises:
        MantyxConfigError: Two tools have the same name.
    """
    seen: Dict[str, int] = {}
    for i, tool in enumerate(tools):
        for name in _model_names(tool):
            first = seen.setdefault(name, i)
            if first != i:
                what, other = describe_ref(tool), describe_ref(tools[first])
                raise MantyxConfigError(
                    f"tools[{i}] ({what}): the model would know one of its tools as {name!r}, like one of "
                    f"tools[{first}] ({other}); set them apart with prefix=, or leave one out with tool_filter="
                )


def _model_names(tool: Any) -> Iterator[str]:
    kind, name = _kind_and_name(tool)
    if kind != "mcp_local":
        if kind in ("local", "a2a", "a2a_local"):
            yield name
        return
    catalog: List[Mapping[str, Any]] = (tool if isinstance(tool, Mapping) else tool.to_wire())["tools"]
    yield from dict.fromkeys(entry["name"] for entry in catalog)


def _kind_and_name(ref: Any) -> Tuple[str, str]:
    if isinstance(ref, Mapping):
        return ref.get("kind", ""), ref.get("name", "")
    return getattr(ref, "kind", ""), getattr(ref, "name", "")
