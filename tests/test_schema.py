"""Checking values against JSON Schemas: dialects, references, recursion, and what the messages say."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from datetime import date, datetime, time, timedelta, timezone

import pytest

from mantyx_sync import formats, schema
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.schema import SchemaChecker, copy_schema

DRAFT_4 = {"maximum": 10, "exclusiveMaximum": True}
DRAFT_7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {"Id": {"type": "integer"}},
    "properties": {"id": {"$ref": "#/definitions/Id"}},
}
NULLABLE = {"type": "string", "nullable": True, "enum": ["a"]}
TREE = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}


def checker(json_schema, **options):
    return SchemaChecker(json_schema, label="tool 'search'", **options)


def nest(depth):
    value = {}
    for _ in range(depth):
        value = {"child": value}
    return value


@pytest.mark.parametrize(
    ("json_schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 1.0, 10**400, -(2**63)], [True, 1.5, "1", None]),
        ({"type": "number"}, [1, 1.5, 10**400], [True, "1"]),
        ({"type": "boolean"}, [True, False], [0, 1, "true"]),
        (DRAFT_4, [9, "x"], [10, 11]),
        (DRAFT_7, [{"id": 1}, {}], [{"id": "x"}]),
        (NULLABLE, [None, "a"], ["b", 1]),
        ({"$defs": {"A": {"type": "string"}}, "$ref": "#/$defs/A"}, ["x"], [1]),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}, "nullable": True}, ["x", None], [1]),
        (TREE, [{}, nest(3)], [{"child": {"x": 1}}, {"child": 1}]),
        ({"$schema": "https://example.com/own-dialect", "type": "string"}, ["x"], [1]),
        ({"enum": [1, "a", None]}, [1, "a", None], [2, "b"]),
        ({"type": "string", "format": "a-format-nobody-knows"}, ["anything"], [1]),
    ],
)
def test_values_are_judged_by_the_schemas_own_dialect(json_schema, good, bad):
    subject = checker(json_schema)
    assert [subject.problem(value) for value in good] == [None] * len(good)
    assert all(subject.problem(value) for value in bad)
    assert subject.enabled


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "date-time",
            ["2024-05-01T10:30:00Z", "2024-05-01 10:30:00.123456789+02:00", "2024-05-01T10:30"],
            ["nope", ""],
        ),
        ("date", ["2024-02-29"], ["2023-02-29", "2024-2-9", "2024-02-29T00:00:00", "\uff12024-01-01"]),
        ("time", ["10:30:00", "10:30:00.5Z", "10:30"], ["25:00:00", "10"]),
        ("duration", ["P1DT2H", "PT0S", "P1Y", "-PT1.5S"], ["P", "PT", "1 day"]),
        ("email", ["a@example.com"], ["a", "a b@c"]),
        ("uuid", ["12345678-1234-5678-1234-567812345678"], ["1234"]),
        ("ipv4", ["127.0.0.1"], ["256.0.0.1", "localhost"]),
        ("ipv6", ["::1"], ["127.0.0.1"]),
        ("uri", ["https://example.com/a?b=c", "urn:isbn:1"], ["/relative", "a b:c"]),
    ],
)
def test_known_formats_are_checked_whatever_is_installed(name, good, bad):
    subject = checker({"type": "string", "format": name})
    assert [subject.problem(value) for value in good] == [None] * len(good)
    assert [subject.problem(value) for value in bad] == [f"the value must be a valid {name}"] * len(bad)
    assert checker({"format": name}).problem(17) is None  # a format speaks of strings only


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (formats.parse_date, "2024-05-01", date(2024, 5, 1)),
        (formats.parse_time, "10:30:05.25", time(10, 30, 5, 250000)),
        (formats.parse_datetime, "2024-05-01t10:30:00z", datetime(2024, 5, 1, 10, 30, tzinfo=timezone.utc)),
        (
            formats.parse_datetime,
            "2024-05-01T10:30:00.123456789-0130",
            datetime(2024, 5, 1, 10, 30, 0, 123456, timezone(-timedelta(hours=1, minutes=30))),
        ),
        (formats.parse_duration, "P1W2DT3H4M5.5S", timedelta(days=9, hours=3, minutes=4, seconds=5.5)),
        (formats.parse_duration, "-PT1M", timedelta(minutes=-1)),
        (formats.parse_base64, "aGk_", b"hi?"),
    ],
)
def test_texts_are_read_as_values(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(days=1), "P1D"),
        (timedelta(days=400, hours=1, seconds=2, microseconds=30), "P400DT1H2.00003S"),
        (timedelta(seconds=-90), "-PT1M30S"),
    ],
)
def test_durations_survive_the_round_trip(value, text):
    assert formats.format_duration(value) == text
    assert formats.parse_duration(text) == value


@pytest.mark.parametrize("text", ["P1Y", "P1M", "P", "P999999999999D", "1"])
def test_durations_without_a_fixed_length_are_refused(text):
    with pytest.raises(ValueError):
        formats.parse_duration(text)


@pytest.mark.parametrize(
    ("json_schema", "said"),
    [
        ({"type": "int"}, "at 'type'"),
        ({"type": "object", "required": True}, "at 'required'"),
        ({"properties": {"a": {"minimum": "1"}}}, "at 'properties.a.minimum'"),
    ],
)
def test_an_invalid_schema_of_ones_own_is_refused_at_once(json_schema, said):
    with pytest.raises(MantyxConfigError, match="tool 'search': it is not a valid JSON Schema") as caught:
        checker(json_schema)
    assert said in str(caught.value)


def test_an_invalid_schema_of_another_party_is_not_checked_and_warned_of_once(caplog):
    subject = checker({"type": "int"}, foreign=True)
    assert subject.problem("anything") is None
    assert subject.problem("anything else") is None
    assert not subject.enabled
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "tool 'search'" in caplog.text


@pytest.mark.parametrize("value", [[], "text", None, {"a": object()}, {"a": float("nan")}, {"a": {1, 2}}])
def test_what_is_no_json_is_no_schema(value):
    with pytest.raises(MantyxConfigError, match="tool 'search'"):
        checker(value)


def test_a_schema_that_contains_itself_is_refused():
    json_schema = {"type": "object"}
    json_schema["properties"] = {"me": json_schema}
    with pytest.raises(MantyxConfigError):
        copy_schema(json_schema, "tool 'search'")


def test_a_reference_out_of_the_document_is_never_fetched(caplog):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        subject = checker({"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"})
        assert [subject.problem(value) for value in (1, "x")] == [None, None]
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert not subject.enabled
    assert len(caplog.records) == 1


@pytest.mark.parametrize("reference", ["#/$defs/Missing", "file:///etc/hostname", "other.json", "#nowhere"])
def test_an_unresolvable_reference_switches_checking_off_with_one_warning(reference, caplog):
    subject = checker({"properties": {"a": {"$ref": reference}}})
    assert subject.problem({"b": 1}) is None
    assert subject.enabled
    assert [subject.problem({"a": 1}) for _ in range(3)] == [None] * 3
    assert not subject.enabled
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("json_schema", "value"), [({"$ref": "#"}, 1), (TREE, nest(2000))])
def test_endless_recursion_is_a_problem_of_the_value(json_schema, value):
    subject = checker(json_schema)
    assert "nested too deeply" in subject.problem(value)
    assert subject.enabled


def test_numbers_out_of_range_do_not_switch_checking_off():
    subject = checker({"multipleOf": 0.5})
    assert subject.problem(float("inf")) is not None
    assert subject.problem(1.0) is None
    assert subject.enabled


def test_a_schema_changed_later_does_not_change_the_checker():
    json_schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    subject = checker(json_schema)
    json_schema["properties"]["a"]["type"] = "string"
    json_schema["type"] = "array"
    assert subject.problem({"a": 1}) is None
    assert subject.problem({"a": "x"}) is not None


@pytest.mark.parametrize("foreign", [False, True])
def test_a_schema_is_checked_once_and_its_validator_kept(monkeypatch, foreign):
    built = []
    real = schema._validator_class
    monkeypatch.setattr(schema, "_validator_class", lambda *args: built.append(1) or real(*args))
    subject = checker({"type": "integer"}, foreign=foreign)
    for number in range(100):
        assert subject.problem(number) is None
    assert built == [1]


@pytest.mark.parametrize(
    ("json_schema", "value", "said"),
    [
        ({"required": ["path"]}, {}, "'path' is a required property"),
        ({"type": "integer"}, "SECRET", "the value must be of type integer, not a string"),
        ({"type": ["integer", "null"]}, "SECRET", "the value must be of type integer or null, not a string"),
        ({"items": {"properties": {"a": {"enum": [1, 2]}}}}, [{"a": "SECRET"}], "'[0].a' must be one of 1, 2"),
        ({"pattern": "^a"}, "SECRET", "the value must match the pattern ^a"),
        ({"maxLength": 2}, "SECRET", "the value must have at most 2 characters"),
        ({"const": 1}, "SECRET", "the value must be 1"),
        (DRAFT_4, 10, "the value must be less than 10"),
        ({"not": {}}, "SECRET", "the value violates 'not' of the schema"),
        (
            {"anyOf": [{"type": "integer"}, {"items": {"type": "integer"}, "type": "array"}]},
            ["SECRET"],
            "the value fits none of the allowed forms ('[0]' must be of type integer, not a string)",
        ),
        (
            {"additionalProperties": False, "properties": {"a": {"required": ["b"]}}},
            {"a": {}, "x": 1},
            "'a': 'b' is a required property",
        ),
    ],
)
def test_a_problem_names_the_place_and_never_the_value(json_schema, value, said):
    problem = checker(json_schema).problem(value)
    assert said in problem
    assert "SECRET" not in problem


def test_a_long_list_of_problems_is_cut():
    subject = checker({"required": [f"field_{number}" for number in range(1000)]})
    assert len(subject.problems({})) == 5
    assert len(checker({"enum": ["x" * 100] * 2 + ["y" * 10_000]}).problem("z")) < 400


def test_checking_goes_on_without_jsonschema_but_unchecked(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    subject = checker({"type": "integer"})
    assert [subject.problem("x") for _ in range(2)] == [None, None]
    assert len(caplog.records) == 1


def test_threads_may_share_a_checker():
    subject = checker(
        {
            "$id": "http://example.com/root.json",
            "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "inner.json"}},
            "$defs": {"A": {"type": "integer"}, "B": {"$id": "inner.json", "$ref": "root.json#/$defs/A"}},
        }
    )
    wrong = []

    def judge():
        for number in range(200):
            if subject.problem({"a": number}) is not None or subject.problem({"a": "x"}) is None:
                wrong.append(number)

    threads = [threading.Thread(target=judge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong


def test_jsonschema_is_loaded_only_when_a_schema_is_met():
    code = (
        "import sys; from mantyx_sync.tools.function import tool, define_local_tool; import mantyx_sync.schema\n"
        "@tool\ndef f(x: int) -> int:\n    return x\n"
        "f.invoke({'x': 1}); f.to_wire()\n"
        "assert 'jsonschema' not in sys.modules and 'pydantic' not in sys.modules\n"
        "define_local_tool(name='g', execute=str, parameters={'type': 'object'})\n"
        "assert 'jsonschema' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
