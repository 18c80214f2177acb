"""Functions as tools: what the model is shown, what reaches the function, and what is refused when."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import pickle
import sys
import threading
import time
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, Literal, NamedTuple, Optional, TypedDict

import jsonschema
import pytest

from mantyx_sync.errors import MantyxConfigError, ToolError, ToolInputError
from mantyx_sync.tools.context import ToolContext
from mantyx_sync.tools.function import FunctionTool, as_tool_ref, define_local_tool, tool

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers  # noqa: F401

NEWEST = getattr(jsonschema, "Draft202012Validator", jsonschema.Draft7Validator)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    count: int = 1


class Options(TypedDict, total=False):
    deep: bool


@tool
def get_order(order_id: str, limit: int = 3) -> Dict[str, Any]:
    """Look up one order.

    Args:
        order_id: The number printed on the receipt.
        limit: How many lines.
    """
    return {"id": order_id, "limit": limit}


def received(function, arguments):
    """Return what reaches a function that returns its parameters."""
    made = function if isinstance(function, FunctionTool) else tool(function)
    seen = []
    recording = replace(made, execute=lambda *args, **kwargs: seen.append(made.execute(*args, **kwargs)))
    recording.invoke(arguments)
    return seen[0]


def schema_of(function):
    return (function if isinstance(function, FunctionTool) else tool(function)).to_wire()["parameters"]


def properties_of(function):
    return schema_of(function)["properties"]


def test_a_function_is_shown_to_the_model_by_its_hints_and_its_docstring():
    assert get_order.to_wire() == {
        "kind": "local",
        "name": "get_order",
        "description": "Look up one order.",
        "parameters": {
            "type": "object",
            "properties": {
                "order_id": {"type": "string", "description": "The number printed on the receipt."},
                "limit": {"type": "integer", "description": "How many lines.", "default": 3},
            },
            "required": ["order_id"],
            "additionalProperties": False,
        },
    }


def test_a_decorated_function_is_still_that_function():
    assert get_order("a", limit=1) == {"id": "a", "limit": 1}
    assert get_order.__name__ == "get_order"
    assert get_order.__doc__.startswith("Look up")
    assert get_order.__module__ == __name__
    assert list(inspect.signature(get_order).parameters) == ["order_id", "limit"]
    assert {get_order: 1}[get_order] == 1


def test_options_of_the_decorator_win_and_reach_the_wire():
    @tool(
        name="other",
        description="Text.",
        timeout=5,
        max_concurrency=2,
        read_only=True,
        retain=True,
        long_running=True,
        output_schema={"type": "object"},
    )
    def function(value: int) -> int:
        """Ignored."""
        return value

    assert {key: item for key, item in function.to_wire().items() if key != "parameters"} == {
        "kind": "local",
        "name": "other",
        "description": "Text.",
        "outputSchema": {"type": "object"},
        "longRunning": True,
        "readOnly": True,
        "retain": True,
    }
    assert (function.timeout, function.max_concurrency) == (5, 2)
    assert function(3) == 3


def test_arguments_reach_the_function_as_the_types_it_names():
    def function(
        a: int,
        b: Optional[List[str]],
        c: Literal["x", 3, None],
        d: Color,
        e: Item,
        f: Options,
        g: datetime,
        h,
        i: Any,
        j: int | list[int],
        k: Dict[str, float],
    ):
        return [a, b, c, d, e, f, g, h, i, j, k]

    arguments = {
        "a": 1.0,
        "b": None,
        "c": 3,
        "d": "red",
        "e": {"name": "x"},
        "f": {"deep": True},
        "g": "2024-05-01T12:00:00",
        "h": [1],
        "i": {"any": "thing"},
        "j": [2],
        "k": {"x": 1},
    }
    result = received(function, arguments)
    assert result == [
        1,
        None,
        3,
        Color.RED,
        Item("x"),
        {"deep": True},
        datetime(2024, 5, 1, 12),
        [1],
        {"any": "thing"},
        [2],
        {"x": 1.0},
    ]
    assert type(result[0]) is int
    schema = schema_of(function)
    NEWEST.check_schema(schema)
    assert NEWEST(schema).is_valid(arguments)
    assert schema["required"] == list(arguments)


# Parameters of every kind (TOOL-03, TOOL-04, TOOL-05)


def test_variadic_parameters_are_not_offered_and_extra_names_do_no_harm():
    def function(x: int, *args, **kwargs):
        return x, args, kwargs

    assert schema_of(function) == {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    assert received(function, {"x": 1, "extra": 2, "args": [3]}) == (1, (), {})


def test_positional_only_and_keyword_only_parameters_are_passed_right():
    def function(a: int, b: int = 2, /, c: int = 3, *, d: int = 4):
        return a, b, c, d

    assert list(properties_of(function)) == ["a", "b", "c", "d"]
    assert received(function, {"a": 1, "d": 9}) == (1, 2, 3, 9)
    assert received(function, {"a": 1, "b": 7, "c": 8}) == (1, 7, 8, 4)


class Shop:
    def __init__(self, name):
        self.name = name

    @tool
    def find(self, item: str) -> str:
        """Find an item."""
        return f"{self.name}:{item}"

    def plain(self, item: str) -> str:
        """Find it plainly."""
        return f"{self.name}/{item}"

    @staticmethod
    @tool
    def outer_static(item: str) -> str:
        return f"static:{item}"

    @tool
    @staticmethod
    def inner_static(item: str) -> str:
        return f"static:{item}"

    @classmethod
    @tool
    def outer_class(cls, item: str) -> str:
        return f"{cls.__name__}:{item}"

    @tool
    @classmethod
    def inner_class(cls, item: str) -> str:
        return f"{cls.__name__}:{item}"

    def __call__(self, item: str) -> str:
        """Call the shop."""
        return f"called:{item}"


class Branch(Shop):
    pass


SHOP = Branch("corner")


@pytest.mark.parametrize(
    ("value", "name", "result"),
    [
        (SHOP.find, "find", "corner:x"),
        (SHOP.plain, "plain", "corner/x"),
        (SHOP.outer_static, "outer_static", "static:x"),
        (Shop.outer_static, "outer_static", "static:x"),
        (SHOP.inner_static, "inner_static", "static:x"),
        (SHOP.outer_class, "outer_class", "Branch:x"),
        (Branch.outer_class, "outer_class", "Branch:x"),
        (SHOP.inner_class, "inner_class", "Branch:x"),
        (Branch.inner_class, "inner_class", "Branch:x"),
        (SHOP, "Branch", "called:x"),
        (functools.partial(lambda prefix, item: prefix + item, "p:"), None, "p:x"),
    ],
)
def test_methods_and_other_callables_are_tools_without_self(value, name, result):
    made = tool(value, name="given") if name is None else as_tool_ref(value)
    assert made.name == (name or "given")
    assert list(made.parameters["properties"]) == ["item"]
    assert made.invoke({"item": "x"}).result == result
    assert made("x") == result


def test_a_method_belongs_to_its_instance():
    one, two = Shop("one"), Shop("two")
    assert one.find.invoke({"item": "x"}).result == "one:x"
    assert two.find.invoke({"item": "x"}).result == "two:x"
    assert Shop.find(one, "x") == "one:x"
    assert one.find.parameters is two.find.parameters


def test_a_method_taken_from_the_class_is_refused():
    with pytest.raises(MantyxConfigError, match="tool 'find': it is a method; take it from an instance"):
        as_tool_ref(Shop.find)
    with pytest.raises(MantyxConfigError):
        Shop.find.to_wire()


def test_a_tool_kept_in_a_class_is_not_taken_for_a_method():
    class Settings:
        lookup = get_order

    assert Settings().lookup is get_order


def test_fixed_arguments_of_a_partial_are_gone():
    def function(a: int, b: int, c: int = 3) -> List[int]:
        """Sum.

        Args:
            c: The last.
        """
        return [a, b, c]

    made = as_tool_ref(functools.partial(function, 1, b=2))
    assert made.name == "function"
    assert made.description == "Sum."
    assert made.parameters["properties"] == {"c": {"type": "integer", "default": 3, "description": "The last."}}
    assert json.loads(made.invoke({}).result) == [1, 2, 3]


def test_a_decorated_function_shows_the_signature_of_the_inner_one():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return wrapper

    @tool
    @twice
    def word(text: str, day: Optional[date] = None) -> str:
        """Say it."""
        return text if day is None else str(day.year)

    assert list(properties_of(word)) == ["text", "day"]
    assert word.invoke({"text": "a", "day": "2024-05-01"}).result == "20242024"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda x: x, "give name="),
        (functools.partial(lambda x: x), "give name="),
        (Shop, "Shop is a class"),
        (17, "a int is no tool"),
        ({"kind": "mantyx"}, "a dict is no tool"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_a_sentence(value, said):
    with pytest.raises(MantyxConfigError, match=said):
        as_tool_ref(value)


def test_a_callable_without_a_readable_signature_is_refused_or_described_by_hand():
    class Opaque:
        __signature__ = "none"
        __name__ = "opaque"

        def __call__(self, **values):
            return values

    with pytest.raises(MantyxConfigError, match="its signature cannot be read"):
        tool(Opaque(), name="opaque")
    made = tool(Opaque(), name="opaque", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
    assert made.invoke({"a": 1}).result == '{"a": 1}'
    with pytest.raises(ToolInputError, match="'a' must be of type integer"):
        made.invoke({"a": "x"})


def test_builtins_work_where_they_say_what_they_take():
    assert tool(len).invoke({"obj": [1, 2]}).result == "2"


def test_a_schema_by_hand_replaces_the_hints():
    @tool(parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
    def function(a, b=2, *, context: Optional[ToolContext] = None):
        return [a, b, context.name]

    assert json.loads(function.invoke({"a": "2024-05-01"}).result) == ["2024-05-01", 2, "function"]
    with pytest.raises(ToolInputError):
        function.invoke({})
    with pytest.raises(MantyxConfigError, match="hints, or from a JSON Schema"):
        tool(lambda a: a, name="f", parameters=Item)


# Annotations (TOOL-06, TOOL-08, TOOL-09)


def test_classes_local_to_a_function_are_found():
    @dataclass
    class Local:
        value: int

    class Inner(NamedTuple):
        local: Local

    @tool
    def function(a: Local, b: List[Inner], c: Optional[Local] = None):
        return a, b, c

    assert received(function, {"a": {"value": 1}, "b": [{"local": {"value": 2}}]}) == (
        Local(1),
        [Inner(Local(2))],
        None,
    )


def test_a_local_class_found_when_a_plain_function_is_used_as_a_tool():
    @dataclass
    class Local:
        value: int

    def function(a: Local):
        return a

    assert received(as_tool_ref(function), {"a": {"value": 1}}) == Local(1)


def test_a_name_of_the_caller_does_not_shadow_the_name_of_the_module():
    def make():
        def function(day: date):
            return day

        return function

    def elsewhere(date):
        return tool(make())

    assert received(elsewhere("not a type"), {"day": "2024-05-01"}) == date(2024, 5, 1)


def test_a_class_of_the_class_body_is_found():
    class Service:
        class Request(NamedTuple):
            size: int

        @tool
        def handle(self, request: Request):
            return request.size

    assert Service().handle.invoke({"request": {"size": 3}}).result == "3"


@pytest.mark.parametrize("hint", ["OnlyForCheckers", "List[OnlyForCheckers]", "complex", "Dict[float, int]", "1 +"])
def test_a_hint_that_cannot_be_used_is_refused_naming_function_and_parameter(hint):
    def function(fine: int, wrong):
        pass

    function.__annotations__["wrong"] = hint
    with pytest.raises(MantyxConfigError, match="tool 'function': parameter 'wrong': "):
        tool(function)
    with pytest.raises(MantyxConfigError, match=r"tool 'other' \(function function\): parameter 'wrong'"):
        tool(function, name="other")


def test_a_field_that_cannot_be_used_is_named_too():
    @dataclass
    class Bad:
        value: complex

    def function(bad: Bad):
        pass

    with pytest.raises(MantyxConfigError, match="parameter 'bad', field 'value' of Bad"):
        tool(function)


def test_annotated_text_wins_over_the_docstring():
    @tool
    def function(a: Annotated[int, "from the hint"], b: int):
        """Sum.

        Args:
            a: from the docstring
            b: from the docstring
        """

    assert [item["description"] for item in properties_of(function).values()] == [
        "from the hint",
        "from the docstring",
    ]


class FieldInfo:
    """Looks like what pydantic's Field returns."""

    def __init__(self, default=..., default_factory=None, **limits):
        self.default = default
        self.default_factory = default_factory
        self.__dict__.update(limits)


FieldInfo.__module__ = "pydantic.fields"


def test_a_field_object_is_a_default_and_never_a_value():
    @tool
    def function(a: int = FieldInfo(3, ge=0, description="d"), b: list = FieldInfo(default_factory=list), *, c=1):  # noqa: B008
        return a, b, c

    assert properties_of(function)["a"] == {"type": "integer", "minimum": 0, "description": "d", "default": 3}
    assert received(function, {}) == (3, [], 1)
    assert received(function, {"a": 5, "b": [1]}) == (5, [1], 1)
    assert function() == (3, [], 1)
    assert function(4, c=2) == (4, [], 2)
    assert function(b=[1], a=9) == (9, [1], 1)
    with pytest.raises(ToolInputError, match="at least 0"):
        function.invoke({"a": -1})


def test_a_field_object_without_a_default_is_required():
    @tool
    def function(a: int = FieldInfo(gt=0)):
        return a

    assert schema_of(function)["required"] == ["a"]


def test_pydantic_fields_and_models_are_parameters():
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        number: int

    def function(order, orders, limit=pydantic.Field(3, ge=0), tag=pydantic.Field(default_factory=lambda: "x")):  # noqa: B008
        return order, orders, limit, tag

    function.__annotations__ = {
        "order": Order,
        "orders": List[Order],
        "limit": int,
        "tag": Annotated[str, pydantic.Field(max_length=3, description="d")],
    }
    schema = schema_of(function)
    NEWEST.check_schema(schema)
    assert set(schema["$defs"]) == {"Order"}
    assert schema["required"] == ["order", "orders"]
    assert schema["properties"]["limit"] == {"type": "integer", "minimum": 0, "default": 3}
    assert schema["properties"]["tag"] == {"type": "string", "maxLength": 3, "description": "d"}
    assert received(function, {"order": {"number": 1}, "orders": []}) == (Order(number=1), [], 3, "x")
    with pytest.raises(ToolInputError, match=r"'order.number' is not accepted"):
        tool(function).invoke({"order": {"number": "SECRET"}, "orders": []})


# Defaults (TOOL-10)


def test_defaults_that_are_json_are_shown_and_others_left_out():
    marker = object()

    def function(
        a: Optional[int] = None,
        b: int = 0,
        c: str = "",
        d: List[int] = [],  # noqa: B006 - that is what is tested
        e: Color = Color.RED,
        f: datetime = datetime(2024, 5, 1),
        g: Any = marker,
        h: set = {1},  # noqa: B006
        i: float = float("inf"),
        j: str = None,  # noqa: RUF013
        k: int = "odd",
    ):
        return a, b, c, d, e, f, g, h, i, j, k

    schema = schema_of(function)
    json.dumps(schema, allow_nan=False)
    assert "required" not in schema
    shown = {name: item["default"] for name, item in schema["properties"].items() if "default" in item}
    assert shown == {"a": None, "b": 0, "c": "", "d": [], "e": "red"}
    assert received(function, {}) == (
        None,
        0,
        "",
        [],
        Color.RED,
        datetime(2024, 5, 1),
        marker,
        {1},
        float("inf"),
        None,
        "odd",
    )


def test_null_means_left_out_unless_the_hint_has_none():
    def function(a: int = 7, b: Optional[int] = 8, c: List[int] = [9], d: str = None, *, e=1):  # noqa: B006, RUF013
        return a, b, c, d, e

    assert received(function, {"a": None, "b": None, "c": None, "d": None, "e": None}) == (7, None, [9], None, None)


def test_null_for_a_required_parameter_is_refused():
    with pytest.raises(ToolInputError, match="'order_id' must be a string, not null"):
        get_order.invoke({"order_id": None})


def test_a_default_changed_by_one_call_is_fresh_in_the_next():
    @tool
    def function(items: list = [], names: dict = {}) -> List[Any]:  # noqa: B006
        items.append(1)
        names["a"] = len(names)
        return [items, names]

    assert [function.invoke({}).result for _ in range(3)] == ['[[1], {"a": 0}]'] * 3


# Arguments of every sort (TOOL-11, TOOL-17, TOOL-19)


@tool
def maybe(a: int = 0, b: float = 0.0, c: str = "") -> List[Any]:
    return [a, b, c]


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ("", [0, 0.0, ""]),
        ("  \n", [0, 0.0, ""]),
        (None, [0, 0.0, ""]),
        ("{}", [0, 0.0, ""]),
        ('{"a": 1, "c": "é\\u0000"}', [1, 0.0, "é\0"]),
        ({"a": 2**70}, [2**70, 0.0, ""]),
        ({"a": 3.0, "b": 1}, [3, 1.0, ""]),
        ('{"a": 1, "a": 2}', [2, 0.0, ""]),
        ('{"b": 1e400}', [0, None, ""]),
    ],
)
def test_arguments_are_taken_as_an_object_as_text_or_not_at_all(arguments, result):
    assert json.loads(maybe.invoke(arguments).result) == result


@pytest.mark.parametrize(
    "arguments",
    [
        [1],
        "[1]",
        '"{}"',
        "null x",
        '{"a":',
        '{"a": NaN}',
        '{"a": ' + "9" * 5000 + "}",
        "rubbish" * 150_000,
        "[" * 100_000,
        '{"c":' * 100_000,
        17,
        True,
        b"{}",
        {"a": True},
        {"a": "1"},
        {"a": 1.5},
        {"b": 10**400},
        {"c": ["SECRET"]},
        {"SECRET": 1},
        {1: 2},
    ],
)
def test_what_is_no_object_of_the_schema_is_an_input_error_and_the_tool_does_not_run(arguments, monkeypatch):
    ran = []
    subject = replace(maybe, execute=lambda **values: ran.append(values))
    if isinstance(arguments, str) and "99999" in arguments and not hasattr(sys, "set_int_max_str_digits"):
        pytest.skip("this Python reads integers of any length")
    with pytest.raises(ToolInputError) as caught:
        subject.invoke(arguments)
    assert not ran
    assert str(caught.value).startswith("tool 'maybe': ")
    assert len(str(caught.value)) < 400
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_every_problem_is_told_at_once():
    @tool
    def function(a: int, b: str, c: Item, d: int = 1):
        raise AssertionError

    with pytest.raises(ToolInputError) as caught:
        function.invoke({"b": 1, "c": {"count": "x"}, "dd": 2})
    assert str(caught.value) == (
        "tool 'function': arguments do not match its schema: 'a' is a required property; "
        "'b' must be a string, not a number; 'c.name' is a required property; "
        "'dd' is not a known property; did you mean 'd'?"
    )


def test_many_problems_are_counted():
    with pytest.raises(ToolInputError, match=r"and 95 more$"):
        maybe.invoke({f"unknown_{number}": 1 for number in range(100)})


@pytest.mark.parametrize("make", [lambda schema: schema, lambda schema: {**schema, "type": "object"}])
def test_recursion_in_schema_or_argument_is_an_input_error(make):
    subject = define_local_tool(name="deep", execute=lambda a: "ran", parameters=make({"$ref": "#"}))
    tree = define_local_tool(
        name="deep", execute=lambda a: "ran", parameters={"properties": {"child": {"$ref": "#"}}, "type": "object"}
    )
    deep = {}
    for _ in range(2000):
        deep = {"child": deep}
    if "type" not in subject.parameters or NEWEST is not jsonschema.Draft7Validator:  # draft 7 reads $ref alone
        with pytest.raises(ToolInputError, match="nested too deeply"):
            subject.invoke({})
    with pytest.raises(ToolInputError, match="nested too deeply"):
        tree.invoke(deep)
    assert tree.invoke({"child": {}}).result == "ran"


def test_a_recursive_argument_of_a_function_is_an_input_error():
    @dataclass
    class Node:
        child: Optional[Node] = None

    @tool
    def function(node: Node):
        raise AssertionError

    deep = {}
    for _ in range(5000):
        deep = {"child": deep}
    with pytest.raises(ToolInputError, match="nested too deeply"):
        function.invoke({"node": deep})


def test_recursion_of_the_handler_itself_is_not_taken_for_bad_input():
    def endless():
        return endless()

    with pytest.raises(RecursionError):
        tool(endless).invoke({})


# define_local_tool


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_a_handler_with_a_json_schema_gets_a_dict_of_its_own():
    event_args = {"n": 1, "more": [1]}
    subject = define_local_tool(name="raw", execute=lambda arguments: arguments.pop("n"), parameters=SCHEMA)
    assert subject.invoke(event_args).result == "1"
    assert event_args == {"n": 1, "more": [1]}
    with pytest.raises(ToolInputError, match="tool 'raw': arguments do not match its schema: 'n' is a required"):
        subject.invoke({})


def test_a_handler_without_a_schema_gets_any_object():
    subject = define_local_tool(name="raw", execute=lambda arguments: arguments)
    assert subject.to_wire() == {"kind": "local", "name": "raw"}
    assert subject.invoke({"a": [1]}).result == '{"a": [1]}'
    assert subject.invoke(None).result == "{}"
    with pytest.raises(ToolInputError):
        subject.invoke([1])


@pytest.mark.parametrize("model", [Item, Options])
def test_a_handler_with_a_class_gets_an_instance(model):
    seen = []
    subject = define_local_tool(name="raw", execute=seen.append, parameters=model)
    arguments = {"name": "a"} if model is Item else {"deep": True}
    subject.invoke(arguments)
    assert seen == [model(**arguments)]
    assert subject.to_wire()["parameters"]["type"] == "object"
    with pytest.raises(ToolInputError):
        subject.invoke({"wrong": 1})


def test_a_handler_with_a_pydantic_model_gets_an_instance():
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        number: int

    class Tree(pydantic.BaseModel):
        trees: List[Any] = []

    seen = []
    subject = define_local_tool(name="raw", execute=seen.append, parameters=Order, output_schema=Tree)
    subject.invoke({"number": 1})
    assert seen == [Order(number=1)]
    wire = subject.to_wire()
    assert wire["parameters"]["properties"]["number"]["type"] == "integer"
    assert wire["outputSchema"]["type"] == "object"
    with pytest.raises(ToolInputError, match="'number' is not accepted"):
        subject.invoke({"number": "x"})


def test_the_schema_given_may_change_later():
    schema = copy.deepcopy(SCHEMA)
    output = {"type": "object"}
    subject = define_local_tool(name="raw", execute=str, parameters=schema, output_schema=output)
    schema["properties"]["n"]["type"] = "string"
    schema["required"].append("other")
    output["type"] = "array"
    wire = subject.to_wire()
    assert wire["parameters"] == SCHEMA
    assert wire["outputSchema"] == {"type": "object"}
    wire["parameters"].clear()
    assert subject.to_wire()["parameters"] == SCHEMA
    subject.invoke({"n": 1})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "with space"}, "must be 1 to 64 of"),
        ({"name": "é"}, "must be 1 to 64 of"),
        ({"name": "a.b"}, "must be 1 to 64 of"),
        ({"name": "x" * 65}, "must be 1 to 64 of"),
        ({"name": ""}, "must be 1 to 64 of"),
        ({"name": "trailing\n"}, "must be 1 to 64 of"),
        ({"name": 7}, "must be 1 to 64 of"),
        ({"execute": None}, "execute must be a function"),
        ({"parameters": {"type": "array"}}, "parameters must be an object schema"),
        ({"parameters": {"type": "objekt"}}, "not a valid JSON Schema"),
        ({"parameters": int}, "parameters must be a class with fields"),
        ({"parameters": complex}, "complex has no JSON form"),
        ({"output_schema": {"type": "string"}}, "output_schema must be an object schema"),
        ({"output_schema": List[int]}, "output_schema must be an object schema"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": True}, "timeout must be"),
        ({"timeout": "5"}, "timeout must be"),
        ({"max_concurrency": 0}, "max_concurrency must be an integer of at least 1"),
        ({"max_concurrency": 1.5}, "max_concurrency must be"),
        ({"description": 5}, "description must be text"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused(options, said):
    with pytest.raises(MantyxConfigError, match=said):
        define_local_tool(**{"name": "raw", "execute": str, **options})


def test_names_are_as_long_as_allowed():
    assert define_local_tool(name="x" * 64, execute=str).name == "x" * 64


async def coroutine_function(x: int):
    return x


async def async_generator(x: int):
    yield x


class AsyncCallable:
    async def __call__(self, x: int):
        return x


@pytest.mark.parametrize(
    "function",
    [
        coroutine_function,
        async_generator,
        AsyncCallable(),
        AsyncCallable().__call__,
        functools.partial(coroutine_function, 1),
    ],
)
def test_an_async_handler_is_refused_at_once(function):
    with pytest.raises(MantyxConfigError, match="async function"):
        tool(function, name="late")
    with pytest.raises(MantyxConfigError, match="async function"):
        define_local_tool(name="late", execute=function)


def test_a_coroutine_that_comes_back_anyway_is_an_error_and_closed():
    with pytest.raises(ToolError, match="tool 'late' returned a value of type coroutine"):
        define_local_tool(name="late", execute=lambda arguments: coroutine_function(1)).invoke({})


# The handler's own errors


@pytest.mark.parametrize(
    "error", [ToolError("for the model"), ValueError("x"), SystemExit(3), KeyboardInterrupt(), BaseException()]
)
def test_what_a_handler_raises_comes_out_as_it_is(error):
    @tool
    def function():
        raise error

    with pytest.raises(type(error)) as caught:
        function.invoke({})
    assert caught.value is error


# The context


def test_a_handler_that_asks_gets_the_context_and_the_model_does_not_see_it():
    @tool
    def function(a: int, context: ToolContext, b: Optional[ToolContext] = None) -> List[Any]:
        return [a, context.run_id, context.tool_use_id, context.name]

    assert list(properties_of(function)) == ["a"]
    context = ToolContext("run_1", "tu_1", "function")
    assert json.loads(function.invoke({"a": 1}, context).result) == [1, "run_1", "tu_1", "function"]
    assert json.loads(function.invoke({"a": 1}).result) == [1, "", "", "function"]
    with pytest.raises(ToolInputError):
        function.invoke({"a": 1, "context": {}}, context)


def test_a_handler_of_one_argument_may_ask_for_the_context_too():
    def execute(arguments, *, context: ToolContext):
        return [arguments, context.run_id]

    for parameters in (None, SCHEMA, Options):
        subject = define_local_tool(name="raw", execute=execute, parameters=parameters)
        arguments = {"n": 1} if parameters is SCHEMA else {}
        assert json.loads(subject.invoke(arguments, ToolContext("run_1")).result) == [arguments, "run_1"]


def test_a_context_tells_when_to_stop():
    context = ToolContext(deadline=time.monotonic() + 60)
    context.raise_if_cancelled()
    assert 0 < context.remaining <= 60
    context.cancelled.set()
    with pytest.raises(ToolError, match="cancelled"):
        context.raise_if_cancelled()
    late = ToolContext(deadline=time.monotonic() - 1)
    assert late.remaining == 0
    with pytest.raises(ToolError, match="longer than allowed"):
        late.raise_if_cancelled()
    assert ToolContext().remaining is None


# Copies, pickles, threads


def test_tools_pickle_like_functions():
    assert pickle.loads(pickle.dumps(get_order)) is get_order
    assert copy.deepcopy(get_order) is get_order
    assert pickle.loads(pickle.dumps(SHOP.find)).invoke({"item": "x"}).result == "corner:x"
    for parameters in (None, SCHEMA, Item):
        subject = define_local_tool(name="raw", execute=json.dumps, parameters=parameters, description="d", timeout=2)
        again = pickle.loads(pickle.dumps(subject))
        assert again.to_wire() == subject.to_wire()
        assert again.timeout == 2


def test_a_tool_can_be_had_again_under_another_name():
    renamed = replace(get_order, name="other", timeout=1)
    assert renamed.to_wire()["name"] == "other"
    assert renamed.invoke({"order_id": "a"}).result == '{"id": "a", "limit": 3}'
    assert renamed("a") == get_order("a")


def test_one_tool_answers_in_many_threads():
    results = []

    def call(number):
        for _ in range(50):
            results.append(json.loads(get_order.invoke({"order_id": str(number)}).result)["id"] == str(number))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [True] * 200


def test_a_tool_works_while_an_event_loop_runs():
    async def main():
        return get_order.invoke({"order_id": "a"}).result

    assert asyncio.run(main()) == '{"id": "a", "limit": 3}'


def test_a_repr_shows_no_handler_and_no_validator():
    text = repr(define_local_tool(name="raw", execute=str, parameters=SCHEMA))
    assert "execute" not in text
    assert "binding" not in text


def test_an_option_that_does_not_exist_is_refused_at_the_decorator() -> None:
    with pytest.raises(TypeError, match="tool: unexpected option 'timout'; did you mean 'timeout'"):
        tool(timout=3)  # type: ignore[call-overload]
