"""Reprs: one line, bounded, without secrets, for every public object that somebody may look at in a notebook."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import sys
import time
from types import MappingProxyType
from typing import Any, Callable, Iterator

import pytest

import mantyx_sync
from mantyx_sync import (
    MantyxClient,
    MantyxError,
    MantyxOAuthClient,
    Page,
    RunResult,
    RunSpec,
    TokenUsage,
    define_local_mcp,
    mantyx_mcp,
    tool,
)
from mantyx_sync.a2a import A2AApp, A2AClient
from mantyx_sync.events import decode
from mantyx_sync.local import LocalGateway, LocalServer, OpenAICompatibleModel, ScriptedModel
from mantyx_sync.loom import LoomClient
from mantyx_sync.mcp import McpClient
from mantyx_sync.reprs import MAX_REPR, bounded, brief, dataclass, short_repr
from mantyx_sync.spacefix import Agent

MARKER = "sk-MARKER-7f3a9"
WINGS = ("local", "mcp", "a2a", "spacefix", "loom", "web", "display")
LONG = "a line\n" * 20_000
FILLING: dict[str, Any] = {
    "text": LONG,
    "list": [LONG] * 1000,
    "mapping": {LONG: {"deep": [[[LONG]]]}, **{f"key {n}": LONG for n in range(1000)}},
    "tuple of events": tuple(decode({"seq": n, "type": "assistant_delta", "data": {"text": LONG}}) for n in range(200)),
}


def public_classes() -> Iterator[type]:
    seen = set()
    for name in ("", *WINGS):
        module = importlib.import_module(f"mantyx_sync.{name}".rstrip("."))
        for public in module.__all__:
            value = getattr(module, public)
            if inspect.isclass(value) and value not in seen and value.__module__.startswith("mantyx_sync"):
                seen.add(value)
                yield value


CLASSES = sorted(public_classes(), key=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
# A timeline tells what it has counted; its own tests make it of what a run can hold.
DATACLASSES = [cls for cls in CLASSES if dataclasses.is_dataclass(cls) and cls.__name__ != "Timeline"]


def named(cls: type) -> str:
    return f"{cls.__module__.partition('.')[2]}.{cls.__qualname__}"


def filled(cls: type, value: object) -> Any:
    """Return an instance with `value` in every field, whatever the class would say to that."""
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(made, field.name, value)
    return made


@pytest.mark.parametrize("cls", DATACLASSES, ids=named)
def test_every_value_has_a_short_repr_on_one_line(cls: type) -> None:
    for what, value in FILLING.items():
        shown = repr(filled(cls, value))
        assert len(shown) <= MAX_REPR, what
        assert shown.isprintable(), what
        assert cls.__name__ in shown


def test_there_are_many_of_them() -> None:
    assert len(DATACLASSES) > 120


@pytest.mark.parametrize("cls", [c for c in CLASSES if issubclass(c, MantyxError)], ids=named)
def test_every_error_has_a_short_repr(cls: type) -> None:
    error = cls.__new__(cls)
    MantyxError.__init__(error, LONG, code=LONG, status=500)
    assert len(repr(error)) <= MAX_REPR
    assert repr(error).isprintable()
    assert str(error) == LONG


@tool
def act() -> str:
    """Act."""
    return LONG


def test_what_is_open_has_a_short_repr_without_secrets() -> None:
    url = "http://127.0.0.1:9/" + "path/" * 20
    server = [sys.executable, "-c", "import time; time.sleep(60)", MARKER * 40]
    client = MantyxClient(api_key=MARKER, workspace_slug="w", base_url="http://127.0.0.1:9")
    opened: dict[str, Callable[[], Any]] = {
        "server": lambda: LocalServer(ScriptedModel(["x"]), api_key=MARKER),
        "gateway": LocalGateway,
        "model": lambda: OpenAICompatibleModel(url, LONG, api_key=MARKER),
        "client": lambda: MantyxClient(api_key=MARKER, workspace_slug="w" * 60, base_url=url),
        "oauth": lambda: MantyxOAuthClient(client_id="c" * 60, client_secret=MARKER, base_url=url),
        "a2a": lambda: A2AClient(url, headers={"Authorization": MARKER}),
        "a2a app": lambda: A2AApp(client, name="n" * 60, description=LONG, system_prompt=MARKER),
        "agent": lambda: Agent([act], agent_key=MARKER, url="http://127.0.0.1:9"),
        "loom": lambda: LoomClient(McpClient.http(url, headers={"A": MARKER}, repeat_after_session_end=False)),
        "mcp http": lambda: McpClient.http(url, headers={"Authorization": MARKER}),
        "mcp stdio": lambda: McpClient.stdio(server, env={"KEY": MARKER}),
        "tool": lambda: act,
        "local mcp": lambda: define_local_mcp(name="files", command=server, env={"KEY": MARKER}),
        "mcp ref": lambda: mantyx_mcp(name="files", url=url, headers={"Authorization": MARKER}),
    }
    for what, make in opened.items():
        one = make()
        try:
            shown = repr(one)
            assert MARKER not in shown, what
            assert len(shown) <= MAX_REPR, (what, shown)
            assert shown.isprintable(), what
        finally:
            close = getattr(one, "close", None) or getattr(one, "stop", None)
            if close is not None:
                close()
    client.close()


# ------------------------------------------------------------------------------------------- how it is done


def test_a_short_value_is_shown_whole() -> None:
    assert repr(TokenUsage(1, 2, 3, 4)) == (
        "TokenUsage(input_tokens=1, cached_tokens=2, reasoning_tokens=3, output_tokens=4)"
    )
    assert repr(RunResult("run_1", "Shipped.")) == "RunResult(run_id='run_1', text='Shipped.', subtype='success')"


def test_a_long_answer_is_cut_and_the_rest_stays() -> None:
    shown = repr(RunResult("run_1", "word " * 20_000, turns=3, tokens=TokenUsage(input_tokens=12)))
    assert shown.startswith("RunResult(run_id='run_1', text='word word ")
    assert "…'" in shown
    assert "turns=3" in shown
    assert "input_tokens=12" in shown


def test_a_page_says_how_many_items_it_has() -> None:
    page = Page(items=tuple(RunResult(f"run_{n}", "x") for n in range(50)))
    assert "more)" in repr(page)
    assert len(repr(page)) <= MAX_REPR


def test_large_values_are_not_looked_at_beyond_what_is_shown() -> None:
    class Counting:
        shown = 0

        def __repr__(self) -> str:
            Counting.shown += 1
            return "x" * 10

    begin = time.perf_counter()
    assert "999,9" in brief([Counting()] * 1_000_000)
    assert Counting.shown < 20
    brief("x" * 50_000_000)
    assert time.perf_counter() - begin < 1.0


@pytest.mark.parametrize(
    ("value", "limit", "expected"),
    [
        ("plain", 120, "'plain'"),
        ("it's", 120, '"it\'s"'),
        ("abcdefghijkl", 6, "'abcdef…'"),
        ("\n" * 30, 12, "'\\n\\n\\n\\n\\n…'"),
        (b"ab", 120, "b'ab'"),
        (b"x" * 1000, 120, "<1,000 bytes>"),
        ((1,), 120, "(1,)"),
        ((), 120, "()"),
        ([], 120, "[]"),
        ({}, 120, "{}"),
        (set(), 120, "set({})"),
        ({"a": [1, {"b": None}]}, 120, "{'a': [1, {'b': None}]}"),
        (MappingProxyType({"a": 1}), 120, "{'a': 1}"),
        (list(range(1000)), 12, "[0, … 999 more]"),
        (3.5, 120, "3.5"),
        (None, 120, "None"),
    ],
    ids=str,
)
def test_values_are_cut_by_what_they_are(value: object, limit: int, expected: str) -> None:
    assert brief(value, limit) == expected


def test_nothing_makes_a_repr_fail() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    class Lines:
        def __repr__(self) -> str:
            return "a\n  b\x1b[31m"

    loop: list[Any] = []
    loop.append(loop)
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert brief(Odd()) == "<Odd>"
    assert brief(Lines()).isprintable()
    assert brief(loop) == "[[[[[[…]]]]]]"
    assert brief(deep) == "[[[[[[…]]]]]]"
    assert brief("\ud800\u202e") == "'\\ud800\\u202e'"
    assert len(short_repr("Name", [(f"field_{n}", "x" * 50) for n in range(100)])) <= MAX_REPR
    assert bounded("short") == "short"
    assert len(bounded("x" * 1000)) == MAX_REPR


@dataclass(frozen=True)
class Plain:
    """What our dataclass is but for its repr."""

    a: int
    b: str = dataclasses.field(default="x", repr=False)
    c: tuple[Any, ...] = ()


@dataclass(frozen=True)
class OwnRepr(Plain):
    def __repr__(self) -> str:
        return "own"


@dataclass
class Changing:
    inner: Any = None


def test_nothing_but_the_repr_differs_from_a_plain_dataclass() -> None:
    one = Plain(1, "secret", (2,))
    assert repr(one) == "Plain(a=1, c=(2,))"
    assert repr(OwnRepr(1)) == "own"
    assert one == Plain(1, "secret", (2,)) != Plain(1)
    assert hash(one) == hash(Plain(1, "secret", (2,)))
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert dataclasses.asdict(one) == {"a": 1, "b": "secret", "c": (2,)}
    assert dataclasses.replace(one, a=3).a == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2  # type: ignore[misc]
    circle = Changing()
    circle.inner = circle
    assert repr(circle) == "Changing(inner=…)"


def test_specs_keep_prompts_out_and_are_short() -> None:
    spec = RunSpec(system_prompt=LONG, prompt=LONG, model_id="m" * 200, metadata={"a": "b"})
    assert "a line" not in repr(spec)
    assert len(repr(spec)) <= MAX_REPR


def test_the_public_names_are_those_of_the_package() -> None:
    assert mantyx_sync.RunResult in CLASSES
