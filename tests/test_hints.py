"""Type hints as JSON Schema and JSON values as types: both directions, judged by jsonschema as well."""

from __future__ import annotations

import collections
import copy
import json
import pickle
import re
import sys
import typing
import uuid
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    FrozenSet,
    Generic,
    List,
    Literal,
    Mapping,
    NamedTuple,
    NewType,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
)

import jsonschema
import pytest

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.hints import compile_type
from mantyx_sync.hints.docstrings import read_docstring
from mantyx_sync.mismatch import Mismatch

NEWEST = getattr(jsonschema, "Draft202012Validator", jsonschema.Draft7Validator)
KNOWS_PREFIX_ITEMS = hasattr(jsonschema, "Draft202012Validator")

T = TypeVar("T")
Number = TypeVar("Number", int, List[int])
Bounded = TypeVar("Bounded", bound=int)
UserId = NewType("UserId", int)
Names = List[str]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(str, Enum):
    YES = "yes"


class Shape(Enum):
    ROUND = (1, 2)
    FLAT = (3, 4)


@dataclass
class Item:
    """An item.

    Attributes:
        name: What it is called.
    """

    name: str
    price: Decimal = Decimal("0")
    tags: List[str] = field(default_factory=list)
    hidden: int = field(default=7, init=False)
    note: Optional[str] = field(default=None, metadata={"description": "A remark."})


@dataclass
class Special(Item):
    extra: int = 0


@dataclass
class Node:
    value: int
    children: List[Node] = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    content: T


@dataclass(frozen=True)
class Positive:
    value: int

    def __post_init__(self):
        if self.value <= 0:
            raise ValueError("value must be above 0")


class Options(TypedDict, total=False):
    deep: bool
    when: date


class Query(Options):
    text: str


class Point(NamedTuple):
    x: int
    y: int = 0


Loose = collections.namedtuple("Loose", "a b", defaults=[1])

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
ID = uuid.UUID(int=5)


def compiled(hint):
    return compile_type(hint, label="output_type")


# hint, pairs of JSON and Python, JSON that must be refused
TABLE = [
    (str, [("a", "a"), ("", "")], [1, None, ["a"]]),
    (int, [(1, 1), (1.0, 1), (10**400, 10**400), (1e300, int(1e300))], [True, 1.5, "1", None, float("inf")]),
    (float, [(1, 1.0), (1.5, 1.5)], [True, "1", None]),
    (bool, [(True, True), (False, False)], [1, 0, "true", None]),
    (bytes, [("aGk=", b"hi")], [1]),
    (datetime, [("2024-05-01T12:00:00Z", NOON)], [1, None]),
    (date, [("2024-05-01", date(2024, 5, 1))], [20240501]),
    (time, [("10:30:00", time(10, 30))], [10]),
    (timedelta, [("PT90S", timedelta(seconds=90))], [90]),
    (uuid.UUID, [(str(ID), ID)], [5]),
    (Path, [("a/b", Path("a/b"))], [1]),
    (Decimal, [("0.10", Decimal("0.10")), (0.1, Decimal("0.1")), (3, Decimal(3))], [True, "NaN", "x", None]),
    (Any, [(1, 1), (None, None), ({"a": [1]}, {"a": [1]})], []),
    (object, [(1, 1)], []),
    (None, [(None, None)], [0, ""]),
    (Optional[str], [("a", "a"), (None, None)], [1]),
    ("str | None", [("a", "a"), (None, None)], [1]),
    ("int | list[int]", [(1, 1), ([1, 2.0], [1, 2])], ["x", ["x"], [[1]]]),
    (Optional[List[str]], [(["a"], ["a"]), (None, None)], ["a", [1]]),
    (Union[int, List[int]], [(1, 1), ([1], [1])], ["x", ["x"]]),
    (Literal["x", 3, None], [("x", "x"), (3, 3), (None, None)], ["y", True, 4]),
    (Literal[1], [(1, 1), (1.0, 1)], [True, "1"]),
    (Literal[True], [(True, True)], [1, "true"]),
    (Literal[Color.RED], [("red", Color.RED)], ["blue"]),
    (Color, [("red", Color.RED)], ["RED", "green", 1, None, ["red"]]),
    (Level, [(1, Level.LOW), (2.0, Level.HIGH)], [3, True, "1"]),
    (Word, [("yes", Word.YES)], ["no"]),
    (Shape, [("ROUND", Shape.ROUND)], [[1, 2], "round"]),
    (List[int], [([], []), ([1], [1])], [{}, "12", [True]]),
    (list, [([1, "a"], [1, "a"])], ["a"]),
    (List, [([1, "a"], [1, "a"])], ["a"]),
    (Sequence[str], [(["a"], ["a"])], ["a"]),
    ("collections.abc.Iterable[int]", [([1], [1])], [1]),
    (Tuple[int, str], [([1, "a"], (1, "a"))], [[1], [1, "a", 2], "1a"]),
    (Tuple[int, ...], [([1, 2], (1, 2)), ([], ())], [["a"]]),
    (tuple, [([1, "a"], (1, "a"))], [1]),
    (Tuple[()], [([], ())], [[1]]),
    (Set[int], [([1, 2], {1, 2})], [["a"], {}]),
    (FrozenSet[str], [(["a"], frozenset("a"))], [[1]]),
    (Dict[str, float], [({"a": 1}, {"a": 1.0})], [{"a": "x"}, []]),
    (Dict[int, str], [({"1": "a", "-2": "b"}, {1: "a", -2: "b"})], [{"x": "a"}, {"1": 2}]),
    (Dict[Color, int], [({"red": 1}, {Color.RED: 1})], [{"green": 1}]),
    (Dict[date, int], [({"2024-05-01": 1}, {date(2024, 5, 1): 1})], []),
    (dict, [({"a": [1]}, {"a": [1]})], [[], "a"]),
    (Mapping[str, Any], [({"a": None}, {"a": None})], [1]),
    (Names, [(["a"], ["a"])], [[1]]),
    (UserId, [(5, 5)], ["5"]),
    (Number, [(5, 5), ([5], [5])], ["5"]),
    (Bounded, [(5, 5)], ["5"]),
    (Annotated[int, "how many"], [(5, 5)], ["5"]),
    (Annotated[Optional[int], "how many"], [(5, 5), (None, None)], ["5"]),
    (
        Item,
        [({"name": "a"}, Item("a")), ({"name": "a", "price": "1.5"}, Item("a", Decimal("1.5")))],
        [{}, {"name": 1}],
    ),
    (Item, [({"name": "a", "note": None}, Item("a"))], [{"name": "a", "hidden": 1}, [], "a", {"nam": "a"}]),
    (Special, [({"name": "a", "extra": 2}, Special("a", extra=2))], [{"extra": 2}]),
    (List[Item], [([{"name": "a"}], [Item("a")])], [[{}], {"name": "a"}]),
    (Node, [({"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)]))], [{"value": 1, "children": [{}]}]),
    (Optional[Node], [(None, None), ({"value": 1}, Node(1))], [{"value": "x"}]),
    (Box[int], [({"content": 1}, Box(1))], [{"content": "x"}]),
    (Box[List[Color]], [({"content": ["red"]}, Box([Color.RED]))], [{"content": ["x"]}]),
    (Box, [({"content": "x"}, Box("x"))], [{}]),
    (Options, [({}, {}), ({"when": "2024-05-01"}, {"when": date(2024, 5, 1)})], [{"deep": 1}, {"x": 1}]),
    (Query, [({"text": "a", "deep": True}, {"text": "a", "deep": True})], [{}, {"text": 1}]),
    (Point, [({"x": 1}, Point(1)), ({"x": 1, "y": 2}, Point(1, 2))], [{}, [1, 2], {"x": "a"}]),
    (Loose, [({"a": "x"}, Loose("x"))], [{}]),
    (Union[Item, Point], [({"name": "a"}, Item("a")), ({"x": 1}, Point(1))], [{"z": 1}]),
]


@pytest.mark.parametrize(
    ("hint", "good", "bad"), TABLE, ids=[re.sub(" at 0x[0-9a-f]+", "", str(row[0])) for row in TABLE]
)
def test_hints_convert_what_their_schema_takes_and_refuse_the_rest(hint, good, bad):
    if isinstance(hint, str) and "collections" in hint:
        hint = collections.abc.Iterable[int]
    subject = compiled(hint)
    NEWEST.check_schema(subject.schema)
    validator = NEWEST(subject.schema)
    for given, expected in good:
        before = copy.deepcopy(given)
        result = subject.parse(given)
        assert result == expected
        assert type(result) is type(expected)
        assert given == before
        assert validator.is_valid(given)
    for given in bad:
        with pytest.raises(Mismatch):
            subject.parse(given)
        if KNOWS_PREFIX_ITEMS:
            assert not validator.is_valid(given)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (datetime, "yesterday"),
        (date, "2024-13-01"),
        (uuid.UUID, "5"),
        (bytes, "not base64!"),
        (timedelta, "P1Y"),
        (float, 10**400),
        (Decimal, float("inf")),
        (Dict[int, int], {"9" * 5000: 1}),
        (Positive, {"value": -1}),
    ],
)
def test_values_that_only_look_right_are_refused(hint, value):
    with pytest.raises(Mismatch):
        compiled(hint).parse(value)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Union[int, float], 1.0, 1.0),
        (Union[float, int], 1, 1),
        (Union[str, datetime], "2024-05-01T12:00:00Z", "2024-05-01T12:00:00Z"),
        (Union[datetime, str], "2024-05-01T12:00:00Z", NOON),
        (Union[datetime, str], "soon", "soon"),
        (Union[bool, int], True, True),
        (Union[int, Any], "x", "x"),
    ],
)
def test_a_union_takes_the_first_member_that_fits_but_leaves_numbers_alone(hint, value, expected):
    result = compiled(hint).parse(value)
    assert result == expected
    assert type(result) is type(expected)


def test_a_set_merges_what_a_model_repeats():
    assert compiled(Set[int]).parse([1, 1, 2]) == {1, 2}


@pytest.mark.parametrize(
    ("hint", "json_schema"),
    [
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[Union[int, str]], {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Dict[str, Any], {"type": "object"}),
        (List[Any], {"type": "array"}),
        (
            Tuple[int, str],
            {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        ),
        (
            Item,
            {
                "type": "object",
                "description": "An item.",
                "properties": {
                    "name": {"type": "string", "description": "What it is called."},
                    "price": {
                        "anyOf": [
                            {"type": "number"},
                            {"type": "string", "pattern": r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,6})?$"},
                        ]
                    },
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "note": {
                        "anyOf": [{"type": "string"}, {"type": "null"}],
                        "description": "A remark.",
                        "default": None,
                    },
                },
                "required": ["name"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_the_schema_of_a_hint(hint, json_schema):
    assert compiled(hint).schema == json_schema


@pytest.mark.parametrize(
    "hint",
    [
        complex,
        Callable[[int], str],
        type,
        Exception,
        "TheUnknown",
        "1 +",
        Dict[float, int],
        Dict[Tuple[int, int], int],
        Literal[b"x"],
        List["TheUnknown"],  # noqa: F821
        {},
        3,
    ],
)
def test_what_has_no_json_form_is_refused_with_a_sentence(hint):
    with pytest.raises(MantyxConfigError, match="output_type: the type") as raised:
        compiled(hint)
    assert "the type: the type" not in str(raised.value)


def test_an_init_only_variable_is_refused_by_name():
    @dataclass
    class Odd:
        seed: InitVar[int]

    with pytest.raises(MantyxConfigError, match="field 'seed' of Odd"):
        compiled(Odd)


def test_definitions_sit_at_the_root_and_every_reference_resolves():
    schema = compiled(Dict[str, List[Union[Node, Item]]]).schema
    assert set(schema["$defs"]) == {"Node", "Item"}
    assert '"$defs"' not in json.dumps({key: item for key, item in schema.items() if key != "$defs"})
    assert references(schema) == {"#/$defs/Node", "#/$defs/Item"}


def test_classes_of_one_name_get_two_definitions():
    first, second = (make_dataclass("Twin", [("value", kind)]) for kind in (int, str))
    subject = compiled(Tuple[first, second, first])
    assert len(subject.schema["$defs"]) == 2
    assert subject.parse([{"value": 1}, {"value": "a"}, {"value": 2}]) == (first(1), second("a"), first(2))
    with pytest.raises(Mismatch):
        subject.parse([{"value": "a"}, {"value": "a"}, {"value": 2}])


def test_a_root_that_contains_itself_is_an_object_at_the_root():
    schema = compiled(Node).schema
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert "$defs" not in compiled(Item).schema


@pytest.mark.parametrize("depth", [5000, 100_000])
def test_a_value_nested_without_end_is_a_mismatch(depth):
    value = {"value": 1}
    for _ in range(depth):
        value = {"value": 1, "children": [value]}
    with pytest.raises(Mismatch, match="nested too deeply"):
        compiled(Node).parse(value)
    while value.get("children"):  # taken apart by hand: freeing it at once would recurse
        value = value.pop("children").pop()


def test_a_hint_that_contains_itself_without_end_is_refused():
    with pytest.raises(MantyxConfigError, match="contains itself"):
        compiled(List["ENDLESS"])


ENDLESS = List["ENDLESS"]


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (List[Item], [{"name": "a"}, {"name": 1}], "'[1].name' must be a string, not a number"),
        (Item, {}, "'name' is a required property"),
        (Item, {"name": "a", "pric": 1}, "'pric' is not a known property; did you mean 'price'?"),
        (Dict[str, Dict[str, int]], {"a": {"b": "SECRET"}}, "'a.b' must be an integer, not a string"),
        (Color, "SECRET", 'the value must be one of "red", "blue"'),
        (datetime, "SECRET", "the value must be a date-time such as 2024-05-01T10:30:00Z"),
        (Optional[List[int]], ["SECRET"], "'[0]' must be an integer, not a string"),
        (Union[int, List[int]], "SECRET", "the value must be an integer or an array, not a string"),
        (Tuple[int, str], [1], "the value must be an array of 2 items, not of 1"),
        (Positive, {"value": -1}, "the value is not accepted: value must be above 0"),
    ],
)
def test_a_mismatch_names_the_place_and_never_the_value(hint, value, said):
    with pytest.raises(Mismatch) as caught:
        compiled(hint).parse(value)
    assert caught.value.sentence() == said


def test_local_classes_are_found_under_postponed_evaluation():
    @dataclass
    class Inner:
        value: int

    @dataclass
    class Outer:
        inner: Inner
        others: Optional[List[Inner]] = None

    assert compiled(Outer).parse({"inner": {"value": 1}, "others": [{"value": 2}]}) == Outer(Inner(1), [Inner(2)])


def test_a_field_named_like_its_type_means_the_type():
    @dataclass
    class Event:
        date: Optional[date] = None

    assert compiled(Event).parse({"date": "2024-05-01"}) == Event(date(2024, 5, 1))


def test_required_and_not_required_decide_for_a_key():
    forms = typing if hasattr(typing, "NotRequired") else pytest.importorskip("typing_extensions")
    names = {"forms": forms, "__name__": __name__}
    exec(
        "from __future__ import annotations\nfrom typing import TypedDict\n"
        "class Late(TypedDict, total=False):\n    a: forms.Required[int]\n    b: str\n"
        "class Early(TypedDict):\n    a: int\n    b: forms.NotRequired[forms.Annotated[str, 'text']]\n",
        names,
    )
    sys.modules[__name__].__dict__["forms"] = forms
    for cls in (names["Late"], names["Early"]):
        subject = compiled(cls)
        assert subject.schema["required"] == ["a"]
        assert subject.parse({"a": 1}) == {"a": 1}
        with pytest.raises(Mismatch):
            subject.parse({"b": "x"})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement")
def test_type_aliases_may_contain_themselves():
    names = {}
    exec("type Json = int | list[Json]\ntype Id = int\ntype Pair[T] = tuple[T, T]", names)
    assert compiled(names["Id"]).schema == {"type": "integer"}
    subject = compiled(names["Json"])
    assert subject.parse([1, [2, [3]]]) == [1, [2, [3]]]
    with pytest.raises(Mismatch):
        subject.parse([1, ["x"]])
    assert references(subject.schema) <= {"#/$defs/Json"}
    assert compiled(names["Pair"][int]).parse([1, 2]) == (1, 2)


@pytest.mark.parametrize(
    ("hint", "wrapped"),
    [(int, True), (Literal["a"], True), (List[Item], True), (Optional[Item], True), (Item, False), (Query, False)],
)
def test_an_output_schema_has_an_object_at_its_root(hint, wrapped):
    subject = compiled(hint)
    assert subject.wrapped is wrapped
    assert subject.object_schema["type"] == "object"
    assert references(subject.object_schema) <= {f"#/$defs/{name}" for name in subject.object_schema.get("$defs", ())}


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, {"value": 3}, 3),
        (int, 3, 3),
        (Optional[Item], {"value": None}, None),
        (List[Node], {"value": [{"value": 1}]}, [Node(1)]),
        (Positive, {"value": 3}, Positive(3)),  # its own field, not the wrapper
    ],
)
def test_a_wrapped_value_is_unwrapped(hint, value, expected):
    result = compiled(hint).parse_object(value)
    assert result == expected
    assert pickle.loads(pickle.dumps(result)) == expected


# Field-like metadata


class Limit:
    """Looks like the objects of annotated-types."""

    def __init__(self, **limits):
        self.__dict__.update(limits)


@pytest.mark.parametrize(
    ("hint", "keywords", "good", "bad"),
    [
        (Annotated[int, Limit(gt=0, le=10)], {"exclusiveMinimum": 0, "maximum": 10}, [1, 10], [0, 11]),
        (Annotated[float, Limit(ge=0.5, lt=1)], {"minimum": 0.5, "exclusiveMaximum": 1}, [0.5], [0.4, 1]),
        (Annotated[int, Limit(multiple_of=3)], {"multipleOf": 3}, [3, 0], [4]),
        (Annotated[float, Limit(multiple_of=0.1)], {"multipleOf": 0.1}, [0.3, 7], [0.35]),
        (Annotated[str, Limit(min_length=1, max_length=3)], {"minLength": 1, "maxLength": 3}, ["a"], ["", "abcd"]),
        (Annotated[List[int], Limit(max_length=2)], {"maxItems": 2}, [[1]], [[1, 2, 3]]),
        (Annotated[Dict[str, int], Limit(min_length=1)], {"minProperties": 1}, [{"a": 1}], [{}]),
        (Annotated[str, Limit(pattern="^a+$")], {"pattern": "^a+$"}, ["aa"], ["b"]),
        (Annotated[Optional[int], Limit(gt=0)], {"exclusiveMinimum": 0}, [None, 1], [0]),
        (Annotated[Decimal, Limit(gt=Decimal("1.5"))], {"exclusiveMinimum": 1.5}, ["1.6", 2], ["1.5", 1]),
        (Annotated[int, Limit(description="d", title="T")], {"description": "d", "title": "T"}, [1], ["x"]),
        (Annotated[int, Limit(metadata=[Limit(gt=0)])], {"exclusiveMinimum": 0}, [1], [0]),
        (Annotated[int, Limit(gt=True, pattern=5), object(), int], {}, [-1], []),
    ],
)
def test_limits_beside_a_type_are_in_the_schema_and_hold(hint, keywords, good, bad):
    subject = compiled(hint)
    NEWEST.check_schema(subject.schema)
    assert {key: subject.schema.get(key) for key in keywords} == keywords
    for value in good:
        subject.parse(value)
    for value in bad:
        with pytest.raises(Mismatch):
            subject.parse(value)


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(MantyxConfigError, match="regular expression"):
        compiled(Annotated[str, Limit(pattern="(")])


# pydantic, where it is installed


def pydantic_models():
    pydantic = pytest.importorskip("pydantic")

    class Leaf(pydantic.BaseModel):
        size: int = pydantic.Field(gt=0, description="How big.")
        when: Optional[datetime] = None

    class Tree(pydantic.BaseModel):
        leaf: Leaf
        trees: List[Tree] = []

    Tree.model_rebuild(_types_namespace={"Leaf": Leaf, "Tree": Tree, "List": List})
    return pydantic, Leaf, Tree


def test_pydantic_models_are_schemas_and_results():
    _, _, Tree = pydantic_models()
    subject = compiled(Tree)
    NEWEST.check_schema(subject.schema)
    assert subject.schema["type"] == "object"
    assert references(subject.schema) <= {f"#/$defs/{name}" for name in subject.schema["$defs"]}
    result = subject.parse({"leaf": {"size": 1, "when": "2024-05-01T12:00:00Z"}, "trees": [{"leaf": {"size": 2}}]})
    assert isinstance(result, Tree)
    assert result.leaf.when == NOON
    with pytest.raises(Mismatch) as caught:
        subject.parse({"leaf": {"size": 0}})
    assert caught.value.sentence().startswith("'leaf.size' is not accepted")


def test_pydantic_models_inside_other_hints_share_the_definitions_of_the_root():
    _, Leaf, Tree = pydantic_models()
    subject = compiled(Dict[str, Union[List[Tree], Leaf, Node]])
    assert references(subject.schema) == {f"#/$defs/{name}" for name in subject.schema["$defs"]}
    assert set(subject.schema["$defs"]) == {"Leaf", "Tree", "Node"}
    assert isinstance(subject.parse({"a": {"size": 1}})["a"], Leaf)


def test_strict_pydantic_models_read_their_types_from_json():
    pydantic = pytest.importorskip("pydantic")

    class Strict(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(strict=True)
        id: uuid.UUID
        pair: Tuple[int, int]

    result = compiled(Strict).parse({"id": str(ID), "pair": [1, 2]})
    assert result == Strict(id=ID, pair=(1, 2))
    with pytest.raises(Mismatch):
        compiled(Strict).parse({"id": str(ID), "pair": ["1", 2]})


def test_pydantic_types_and_fields_are_understood():
    pydantic = pytest.importorskip("pydantic")
    subject = compiled(Annotated[int, pydantic.Field(gt=0, description="d")])
    assert subject.schema == {"type": "integer", "exclusiveMinimum": 0, "description": "d"}
    with pytest.raises(Mismatch):
        subject.parse(0)
    assert compiled(pydantic.PositiveInt).schema == {"type": "integer", "exclusiveMinimum": 0}
    assert str(compiled(pydantic.AnyUrl).parse("https://example.com/")) == "https://example.com/"

    Checked = pydantic.dataclasses.dataclass(make_dataclass("Checked", [("value", pydantic.PositiveInt)]))
    assert compiled(Checked).parse({"value": 1}) == Checked(1)
    with pytest.raises(Mismatch):
        compiled(Checked).parse({"value": 0})


@pytest.mark.filterwarnings("ignore")
def test_models_of_the_first_pydantic_are_schemas_and_results():
    pytest.importorskip("pydantic")
    try:
        from pydantic import v1
    except ImportError:
        pytest.skip("this pydantic has no v1 inside")
    if sys.version_info >= (3, 14):
        pytest.skip("pydantic.v1 does not run on this Python")

    class Leaf(v1.BaseModel):
        size: v1.conint(gt=0)

    class Tree(v1.BaseModel):
        leaf: Leaf

    Leaf.update_forward_refs(v1=v1)
    Tree.update_forward_refs(Leaf=Leaf)
    subject = compiled(List[Tree])
    assert references(subject.schema) == {f"#/$defs/{name}" for name in subject.schema["$defs"]}
    assert subject.parse([{"leaf": {"size": 1}}]) == [Tree(leaf=Leaf(size=1))]
    with pytest.raises(Mismatch) as caught:
        subject.parse([{"leaf": {"size": 0}}])
    assert caught.value.sentence().startswith("'[0].leaf.size' is not accepted")


# Docstrings


GOOGLE = """Add two numbers.

    More about it: see https://example.com.

    Args:
        a: The first: see https://example.com/a.
        b (Optional[Tuple[int, int]], optional): The second,
            over two lines.

            And a paragraph.
        *rest: Others.
        c, d: Two at once.

    Returns:
        The sum.

    Raises:
        ValueError: Never.
    """
NUMPY = """Add two numbers.

    Parameters
    ----------
    a : int
        The first: see
        https://example.com/a.
    b : {1, 2}, optional
        The second.
    c, d
        Two at once.

    Returns
    -------
    int
        The sum.

    Other Parameters
    ----------------
    e : int
        The last.
    """
REST = """Add two numbers.

    :param a: The first: see https://example.com/a.
    :type a: int
    :param int b: The second,
        over two lines.
    :keyword e: The last.
    :returns: The sum.
    :raises ValueError: Never.
    """


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        (
            GOOGLE,
            "Add two numbers.\n\nMore about it: see https://example.com.",
            {
                "a": "The first: see https://example.com/a.",
                "b": "The second, over two lines. And a paragraph.",
                "rest": "Others.",
                "c": "Two at once.",
                "d": "Two at once.",
            },
        ),
        (
            NUMPY,
            "Add two numbers.",
            {
                "a": "The first: see https://example.com/a.",
                "b": "The second.",
                "c": "Two at once.",
                "d": "Two at once.",
                "e": "The last.",
            },
        ),
        (
            REST,
            "Add two numbers.",
            {"a": "The first: see https://example.com/a.", "b": "The second, over two lines.", "e": "The last."},
        ),
        ("Sum.\nArgs:\n  a: first", "Sum.", {"a": "first"}),
        ("Args:\n    a: first", "", {"a": "first"}),
        ("\n\n\tSum.\n\n\tArgs:\n\t\ta: first\n\t\t\tmore\n", "Sum.", {"a": "first more"}),
        (
            "Sum.\n\nKeyword Args:\n    a: first\nOther Parameters:\n    b: second",
            "Sum.",
            {"a": "first", "b": "second"},
        ),
        ("Sum.\n\nArgs:\n    a (int): first\n    b: second\nNot an item.", "Sum.", {"a": "first", "b": "second"}),
        ("Sum.\n\nArgs:\n    a:\n        first\n", "Sum.", {"a": "first"}),
        ("Sum.\n\n@param a: first\n@return: sum", "Sum.", {"a": "first"}),
        ("Note: a colon alone: is text.", "Note: a colon alone: is text.", {}),
        ("Title\n-----\n\nText.", "Text.", {}),
        ("", "", {}),
        (None, "", {}),
        (17, "", {}),
    ],
)
def test_docstrings_of_every_style_are_read(text, description, parameters):
    info = read_docstring(text)
    assert info.description == description
    assert info.parameters == parameters


def references(node):
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(references(item) for item in node.values()))
    if isinstance(node, list):
        return set().union(*(references(item) for item in node))
    return set()
