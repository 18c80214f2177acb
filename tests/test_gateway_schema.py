"""Input schemas at the embedded gateway: what compiles, and Ajv's words for arguments that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from mantyx_sync.local.gateway_schema import InputSchema, SchemaRefused


@pytest.mark.parametrize(
    ("schema", "detail"),
    [
        ({"type": "nonsense"}, "type must be JSONType or JSONType[]: nonsense"),
        ({"type": ["string", "x"]}, "type must be JSONType or JSONType[]: string,x"),
        ({"type": 5}, "type must be JSONType or JSONType[]: 5"),
        ({"items": {"anyOf": [{"type": "strin"}]}}, "type must be JSONType or JSONType[]: strin"),
        ({"required": "id"}, 'required value must be ["array"]'),
        ({"properties": []}, 'properties value must be ["object"]'),
        ({"minimum": "1"}, 'minimum value must be ["number"]'),
        ({"exclusiveMaximum": True}, 'exclusiveMaximum value must be ["number"]'),
        ({"additionalProperties": "no"}, 'additionalProperties value must be ["boolean","object"]'),
        ({"not": 1}, 'not value must be ["object","boolean"]'),
        ({"enum": []}, "enum must have non-empty array"),
        ({"$ref": 5}, '$ref value must be ["string"]'),
        ({"$ref": "#/$defs/x"}, "can't resolve reference #/$defs/x from id #"),
        ({"$ref": "http://e.x/y"}, "can't resolve reference http://e.x/y from id #"),
        ({"$id": "http://me/", "$ref": "#/a"}, "can't resolve reference #/a from id http://me/"),
        ({"properties": {"a": 5}}, "schema must be object or boolean"),
        ("text", "schema must be object"),
        (True, "schema must be object"),
    ],
)
def test_a_schema_that_does_not_compile_is_refused_with_the_detail(schema: Any, detail: str) -> None:
    with pytest.raises(SchemaRefused) as caught:
        InputSchema(schema, "t")
    assert str(caught.value) == detail


def test_what_only_the_meta_schema_forbids_is_refused_too() -> None:
    with pytest.raises(SchemaRefused, match="minLength"):
        InputSchema({"properties": {"a": {"minLength": -1}}}, "t")


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"not": schema}
    with pytest.raises(SchemaRefused, match="nested too deep"):
        InputSchema(schema, "t")


def of(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


@pytest.mark.parametrize(
    ("schema", "arguments", "complaint"),
    [
        (of({"type": "string"}), {"a": 5}, "data/a must be string"),
        (of({"type": ["string", "null"]}), {"a": 5}, "data/a must be string,null"),
        (of({"type": "integer"}), {"a": 1.5}, "data/a must be integer"),
        (of({"minimum": 1}), {"a": 0}, "data/a must be >= 1"),
        (of({"maximum": 1.5}), {"a": 2}, "data/a must be <= 1.5"),
        (of({"exclusiveMinimum": 1}), {"a": 1}, "data/a must be > 1"),
        (of({"exclusiveMaximum": 1}), {"a": 1}, "data/a must be < 1"),
        (of({"multipleOf": 2}), {"a": 3}, "data/a must be multiple of 2"),
        (of({"minLength": 2}), {"a": "x"}, "data/a must NOT have fewer than 2 characters"),
        (of({"maxLength": 1}), {"a": "xy"}, "data/a must NOT have more than 1 characters"),
        (of({"enum": ["x"]}), {"a": 1}, "data/a must be equal to one of the allowed values"),
        (of({"const": "x"}), {"a": 1}, "data/a must be equal to constant"),
        (of({"minItems": 1}), {"a": []}, "data/a must NOT have fewer than 1 items"),
        (of({"maxItems": 1}), {"a": [1, 2]}, "data/a must NOT have more than 1 items"),
        (
            of({"uniqueItems": True}),
            {"a": [1, {"b": 2}, {"b": 2}]},
            "data/a must NOT have duplicate items (items ## 1 and 2 are identical)",
        ),
        (of({"items": {"type": "string"}}), {"a": ["x", 1, 2]}, "data/a/1 must be string"),
        (of({"contains": {"const": 1}}), {"a": [2]}, None),
        (of({"not": {"type": "string"}}), {"a": "x"}, "data/a must NOT be valid"),
        (of(False), {"a": 1}, "data/a boolean schema is false"),
        ({"required": ["b", "c"]}, {}, "data must have required property 'b'"),
        ({"minProperties": 1}, {}, "data must NOT have fewer than 1 properties"),
        ({"maxProperties": 0}, {"a": 1}, "data must NOT have more than 0 properties"),
        ({"additionalProperties": False}, {"a": 1}, "data must NOT have additional properties"),
        ({"additionalProperties": {"type": "string"}}, {"a/b~c": 1}, "data/a~1b~0c must be string"),
        (
            {"propertyNames": {"maxLength": 1}},
            {"ab": 1},
            "data must NOT have more than 1 characters, data property name must be valid",
        ),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}, "data must have property b when property a is present"),
        (
            {"dependencies": {"a": ["b", "c"]}},
            {"a": 1},
            "data must have properties b, c when property a is present",
        ),
        (
            of({"anyOf": [{"type": "string"}, {"type": "number", "minimum": 3}]}),
            {"a": 1},
            "data/a must be string, data/a must be >= 3, data/a must match a schema in anyOf",
        ),
        (
            of({"oneOf": [{"type": "string"}, {"type": "null"}]}),
            {"a": 1},
            "data/a must be string, data/a must be null, data/a must match exactly one schema in oneOf",
        ),
        (of({"oneOf": [{}, {}]}), {"a": 1}, "data/a must match exactly one schema in oneOf"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, "data must have required property 'b'"),
        (
            {**of({"$ref": "#/$defs/x"}), "$defs": {"x": {"type": "string"}}},
            {"a": 1},
            "data/a must be string",
        ),
    ],
)
def test_arguments_are_refused_in_ajvs_words(schema: Any, arguments: Any, complaint: str | None) -> None:
    found = InputSchema(schema, "t").complaint(arguments)
    if complaint is None:  # Ajv adds what it minded about each item: only the verdict is alike
        assert found is not None
        assert found.endswith("must contain at least 1 valid item(s)")
    else:
        assert found == complaint


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        # `type` comes first, unless there is more to say for that very type.
        (of({"type": "boolean", "const": "x"}), "data/a must be boolean"),
        (of({"type": "array", "minItems": 1, "const": "x"}), "data/a must be equal to constant"),
        # What holds for any value comes before what holds for numbers.
        (of({"minimum": 10, "enum": ["x"]}), "data/a must be equal to one of the allowed values"),
        # The object itself before its properties, and these in the schema's order.
        ({**of({"type": "string"}), "required": ["b"]}, "data must have required property 'b'"),
        ({**of({"type": "string"}), "additionalProperties": False}, "data must NOT have additional properties"),
        ({"properties": {"z": {"type": "string"}, "a": {"minimum": 10}}}, "data/z must be string"),
    ],
)
def test_of_several_errors_the_one_that_ajv_finds_first_is_told(schema: Any, complaint: str) -> None:
    assert InputSchema(schema, "t").complaint({"a": 1, "z": 1}) == complaint


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (of({"type": "string", "pattern": "^x$"}), {"a": "y"}),
        (of({"type": "string", "format": "email"}), {"a": "y"}),
        (of({"type": "string", "pattern": "("}), {"a": "y"}),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"a": 1}),
        ({"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False}, {"a": "x"}),
        ({"properties": {"n": {"items": {"allOf": [{"pattern": "x"}]}}}}, {"n": ["y"]}),
        # As names of properties and inside of values these words mean nothing special.
        (
            {"properties": {"pattern": {"type": "string"}, "format": {"enum": [{"format": 1}]}}},
            {"format": {"format": 1}},
        ),
    ],
)
def test_pattern_pattern_properties_and_format_are_never_enforced(schema: Any, arguments: Any) -> None:
    assert InputSchema(schema, "t").complaint(arguments) is None


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = {"properties": {"pattern": {"type": "string"}, "then": {"type": "string"}}}
    assert InputSchema(schema, "t").complaint({"pattern": 1}) == "data/pattern must be string"
    assert InputSchema(schema, "t").complaint({"then": 1}) == "data/then must be string"
