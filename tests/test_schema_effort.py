"""What a schema of another party may cost: no expression, reference or array in it holds a program up."""

from __future__ import annotations

import time
from typing import Any, Dict

import pytest

from mantyx_sync import schema_effort
from mantyx_sync.schema import SchemaChecker

DIALECTS = ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema")


def foreign(schema: Dict[str, Any]) -> SchemaChecker:
    return SchemaChecker(schema, label="tool 'x'", foreign=True)


def doubling(keyword: str, **more: Any) -> Dict[str, Any]:
    """Make a schema whose references double 60 times."""
    defs: Dict[str, Any] = {f"a{n}": {keyword: [{"$ref": f"#/definitions/a{n + 1}"}] * 2, **more} for n in range(60)}
    defs["a60"] = keyword == "allOf"
    return {"$schema": DIALECTS[0], "definitions": defs, "allOf": [{"$ref": "#/definitions/a0"}]}


@pytest.mark.parametrize(
    "schema",
    [doubling("allOf"), doubling("anyOf"), *(doubling("allOf", **{"$schema": name}) for name in DIALECTS)],
    ids=["allOf", "anyOf", "its own dialect", "another dialect"],
)
def test_a_check_that_takes_too_long_is_given_up_for_good(
    schema: Dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema_effort, "MAX_SECONDS", 0.1)
    checker = foreign(schema)
    began_at = time.monotonic()
    assert checker.problem(1) is None
    assert time.monotonic() - began_at < 3
    assert not checker.enabled
    assert "takes longer than 0.1 seconds" in caplog.text


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "^(a|a)*$",
        "^(a|aa)+$",
        "^(a?){60}$",
        "^(?:a*)*$",
        "^([a-z]+)*!$",
        "^a*a*a*a*a*a*a*b$",
        "^((a{1,9}){1,9}){1,9}$",
    ],
)
@pytest.mark.parametrize("place", ["pattern", "patternProperties", "a part"])
def test_an_expression_that_would_take_for_ever_is_left_out(pattern: str, place: str) -> None:
    text = "a" * 2000 + "?"
    value: Any = text
    schema: Dict[str, Any] = {"pattern": pattern}
    if place == "patternProperties":
        schema, value = {"patternProperties": {pattern: {}}, "additionalProperties": False}, {text: 1}
    elif place == "a part":
        schema = {"definitions": {"a": {"$schema": DIALECTS[0], **schema}}, "allOf": [{"$ref": "#/definitions/a"}]}
    began_at = time.monotonic()
    assert foreign(schema).problem(value) is None
    assert time.monotonic() - began_at < 3


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"^[a-z]+$", "abc" * 500, "abc" * 500 + "!"),
        (r"^[a-z0-9]+(-[a-z0-9]+)*$", "a-b-c", "a--b"),
        (r"^\S+@\S+\.\S+$", "ada@example.org", "ada"),
        (r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", "01234567-0123-0123-0123-0123456789ab", "0123" * 300),
        (r"^(foo|bar)$", "foo", "x" * 10_000),
        (r"^(?P<a>x|y)\w{2,40}(?P=a)(?!z)$", "xaax", "xaay"),
    ],
)
def test_usual_expressions_are_checked(pattern: str, right: str, wrong: str) -> None:
    checker = foreign({"pattern": pattern})
    assert checker.problem(right) is None
    assert checker.problem(wrong) == f"the value must match the pattern {pattern}"


def test_names_are_checked_against_usual_expressions() -> None:
    checker = foreign({"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False})
    assert checker.problem({"x-a": 1}) is None
    assert checker.problem({"x-a": "1"}) is not None
    assert checker.problem({"y": 1}) is not None


@pytest.mark.parametrize(
    ("more", "is_right"),
    [([], True), ([{"n": 5}], False), ([{"n": 5.0}], False), ([[1, {"a": None}]], True), ([[{}], [{}]], False),
     ([1, True, "1"], True), ([1, 1.0], False)],
)  # fmt: skip
def test_a_long_array_of_objects_is_compared_in_no_time(more: Any, is_right: bool) -> None:
    checker = foreign({"uniqueItems": True})
    assert (checker.problem([*({"n": n} for n in range(200)), *more]) is None) is is_right
    began_at = time.monotonic()
    assert checker.problem([{"n": n} for n in range(20_000)]) is None
    assert checker.problem([{"n": min(n, 19_998)} for n in range(20_000)]) is not None
    assert time.monotonic() - began_at < 3


def test_ones_own_schema_is_checked_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_effort, "MAX_SECONDS", -1.0)
    checker = SchemaChecker({"pattern": "^(a+)+$"}, label="tool 'x'")
    assert checker.problem("aaaa!") is not None
    assert foreign({"type": "string"}).problem(1) is None
