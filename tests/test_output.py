"""Structured output: what `output_type` asks for, and what becomes of the answer."""

from __future__ import annotations

import copy
import enum
import importlib.util
import json
import pickle
import sys
import traceback
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any, Callable, Dict, List, Literal, NamedTuple, NewType, Optional, TypedDict, Union

import pytest

from mantyx_sync import MantyxClient, MantyxConfigError, MantyxParseError, MantyxRunError, RunResult, tool
from mantyx_sync.events import AssistantMessage
from mantyx_sync.local import Failure, LocalServer, ScriptedModel, ToolUse, TurnEnd
from mantyx_sync.output import OutputType, parse_run_output
from tests.scripted_runs import SPEC, quick_client, quickly

pytestmark = pytest.mark.usefixtures("no_leaks")

HAS_PYDANTIC = importlib.util.find_spec("pydantic") is not None
needs_pydantic = pytest.mark.skipif(not HAS_PYDANTIC, reason="needs pydantic")
MARKER = "Mrs Marker of 17 Marker Street"


class _NoType:
    """Stands for what is no type, with a repr that is the same in every process: it is part of a test's name."""

    def __repr__(self) -> str:
        return "<no type>"


NO_TYPE = _NoType()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)


@dataclass
class Reading:
    city: str
    celsius: float
    day: Optional[date] = None
    tags: List[str] = field(default_factory=list)


@dataclass
class Node:
    name: str
    children: List[Node] = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: int


class Pair(NamedTuple):
    left: int
    right: str


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


UserId = NewType("UserId", int)
SCHEMA: dict[str, Any] = {
    "title": "Reading",
    "type": "object",
    "properties": {"city": {"type": "string"}, "celsius": {"$ref": "#/$defs/number"}},
    "required": ["city"],
    "$defs": {"number": {"type": "number", "maximum": 60}},
}


def answering(turn: Any) -> LocalServer:
    return LocalServer(ScriptedModel([turn]))


def client_of(server: LocalServer) -> MantyxClient:
    return quick_client(server, api_key=server.api_key, workspace_slug=server.workspace_slug)


def ask(answer: Any, output_type: Any) -> tuple[RunResult, dict[str, Any]]:
    """Run an agent that gives this answer; return the result and the output schema that went out."""
    with answering(json.dumps(answer)) as server, client_of(server) as client:
        return client.run_agent(**SPEC, output_type=output_type), server.runs[0].spec["outputSchema"]


def result_of(text: str, *events: Any) -> RunResult:
    return RunResult(run_id="run_1", text=text, events=events)


def read(text: str, wanted: Any = None) -> Any:
    return parse_run_output(result_of(text), wanted)


# ------------------------------------------------------------- types

TYPES: list[tuple[Any, Any, Any]] = [
    (Reading, {"city": "Rome", "celsius": 31}, Reading("Rome", 31.0)),
    (Reading, {"city": "R", "celsius": 1.5, "day": "2026-01-02"}, Reading("R", 1.5, date(2026, 1, 2))),
    (Movie, {"title": "M", "year": 1931}, {"title": "M", "year": 1931}),
    (Node, {"name": "a", "children": [{"name": "b"}]}, Node("a", [Node("b")])),
    (Pair, {"left": 1, "right": "x"}, Pair(1, "x")),
    (List[Reading], {"value": [{"city": "R", "celsius": 1}]}, [Reading("R", 1.0)]),
    (List[Movie], {"value": [{"title": "M", "year": 1}]}, [{"title": "M", "year": 1}]),
    (Dict[str, int], {"a": 1}, {"a": 1}),
    (int, {"value": 17}, 17),
    (str, {"value": "x"}, "x"),
    (bool, {"value": True}, True),
    (UserId, {"value": 3}, 3),
    (Mood, {"value": "bad"}, Mood.BAD),
    (Literal["yes", "no"], {"value": "no"}, "no"),
    (Optional[Reading], {"value": None}, None),
    (Optional[Reading], {"value": {"city": "R", "celsius": 1}}, Reading("R", 1.0)),
    (Union[int, str], {"value": "x"}, "x"),
    ("List[Reading]", {"value": []}, []),
    (SCHEMA, {"city": "Rome", "celsius": 31}, {"city": "Rome", "celsius": 31}),
    ({"type": "array", "items": {"type": "integer"}}, [1, 2], [1, 2]),
]


@pytest.mark.parametrize(("wanted", "answer", "value"), TYPES)
def test_the_answer_becomes_a_value_of_the_type(wanted: Any, answer: Any, value: Any) -> None:
    found, sent = ask(answer, wanted)
    assert found.output == value
    assert type(found.output) is type(value)
    assert found.text == json.dumps(answer)
    assert found.structured_output is not None
    assert found.structured_output.schema_requested
    if wanted is not TYPES[-1][0]:
        assert sent["schema"]["type"] == "object", "the platform wants an object at the root"
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(("wanted", "answer", "value"), TYPES)
def test_a_result_is_parsed_afterwards_alike(wanted: Any, answer: Any, value: Any) -> None:
    assert read(json.dumps(answer), wanted) == value


@pytest.mark.parametrize(
    ("wanted", "bare", "value"),
    [(List[int], [1, 2], [1, 2]), (int, 17, 17), (Optional[int], None, None), (Literal["a"], "a", "a")],
)
def test_an_answer_without_the_wrapping_object_is_taken_as_well(wanted: Any, bare: Any, value: Any) -> None:
    found, sent = ask(bare, wanted)
    assert list(sent["schema"]["properties"]) == ["value"]
    assert found.output == value


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (
            Movie,
            {
                "name": "Movie",
                "schema": {
                    "type": "object",
                    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
                    "required": ["title", "year"],
                    "additionalProperties": False,
                },
            },
        ),
        (SCHEMA, {"name": "Reading", "schema": SCHEMA}),
        ({"type": "object", "title": "not a name"}, {"schema": {"type": "object", "title": "not a name"}}),
        (
            List[int],
            {
                "name": "List",
                "schema": {
                    "type": "object",
                    "properties": {"value": {"type": "array", "items": {"type": "integer"}}},
                    "required": ["value"],
                    "additionalProperties": False,
                },
            },
        ),
    ],
    ids=["TypedDict", "schema with a title", "schema with a title that is no name", "list"],
)
def test_the_request_asks_for_the_type(wanted: Any, sent: dict[str, Any]) -> None:
    asked = OutputType(wanted).to_wire()
    if sys.version_info < (3, 10) and wanted == List[int]:
        del sent["name"]  # an alias of typing has no name there
    assert asked == sent


def test_the_schema_is_sent_as_it_was_and_not_touched() -> None:
    schema = copy.deepcopy(SCHEMA)
    found, sent = ask({"city": "Rome", "celsius": 31}, schema)
    assert schema == SCHEMA == sent["schema"]
    wanted = OutputType(schema)
    schema["required"] = ["nothing"]
    assert wanted.to_wire()["schema"] == SCHEMA, "a later change is not seen"
    found.output["city"] = "changed"
    assert sent["schema"] == SCHEMA


def test_the_schema_of_a_class_is_not_shared_between_requests() -> None:
    first, second = OutputType(Node).to_wire(), OutputType(Node).to_wire()
    before = json.dumps(second)
    first["schema"].clear()
    assert json.dumps(second) == before


@needs_pydantic
def test_pydantic_models_and_lists_of_them() -> None:
    import pydantic

    class Weather(pydantic.BaseModel):
        city: str
        celsius: float = pydantic.Field(ge=-90, description="Measured in the shade")
        next: Optional[Weather] = None

    Weather.model_rebuild(_types_namespace={"Weather": Weather, "Optional": Optional})
    found, sent = ask({"city": "Rome", "celsius": 31, "next": {"city": "Oslo", "celsius": 2}}, Weather)
    assert isinstance(found.output, Weather)
    assert isinstance(found.output.next, Weather)
    assert sent["name"] == "Weather"
    assert sent["schema"]["type"] == "object"
    many, _ = ask({"value": [{"city": "Rome", "celsius": 31}]}, List[Weather])
    assert many.output == [Weather(city="Rome", celsius=31)]
    maybe, _ = ask({"value": None}, Optional[Weather])
    assert maybe.output is None
    assert read('{"city": "R", "celsius": 1}', Weather.model_validate) == Weather(city="R", celsius=1)
    assert read('[{"city": "R", "celsius": 1}]', pydantic.TypeAdapter(List[Weather]).validate_python)[0].city == "R"
    with pytest.raises(MantyxParseError, match="'celsius'") as caught:
        ask({"city": MARKER, "celsius": -91, "next": {"city": MARKER, "celsius": MARKER}}, Weather)
    assert MARKER in caught.value.text
    assert MARKER not in "".join(traceback.format_exception(type(caught.value), caught.value, None))


@pytest.mark.parametrize(
    "wanted",
    [NO_TYPE, 17, Callable[[int], int], {"type": "nonsense"}, {"type": NO_TYPE}, "NoSuch", "List[NoSuch]"],
    ids=str,
)
def test_a_type_without_json_form_is_refused_before_anything_is_sent(wanted: Any) -> None:
    with answering("x") as server, client_of(server) as client:
        for call in (client.run_agent, client.stream_agent, client.start_agent):
            with pytest.raises(MantyxConfigError, match=r"^output_type"):
                call(**SPEC, output_type=wanted)
        with pytest.raises(MantyxConfigError, match=r"^output_type"):
            client.map(["x"], system_prompt="x", output_type=wanted)
        assert not server.requests


def test_the_form_of_output_schema_is_not_mistaken_for_a_schema() -> None:
    with answering("x") as server, client_of(server) as client:
        with pytest.raises(MantyxConfigError, match="output_schema="):
            client.run_agent(**SPEC, output_type={"name": "reading", "schema": SCHEMA})
        assert not server.requests


def test_a_schema_above_the_limit_is_refused() -> None:
    with pytest.raises(MantyxConfigError, match=r"output_schema: got .* bytes"):
        ask("x", {"type": "object", "description": "x" * 33_000})


# ------------------------------------------------------------- where output appears


def test_output_is_on_the_result_of_every_way_to_ask() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "31"

    turns = [[ToolUse("look", {})], '{"city": "Rome", ', '"celsius": 31}']
    value = Reading("Rome", 31.0)
    with LocalServer(ScriptedModel([turns[0], [turns[1], turns[2]]])) as server, client_of(server) as client:
        wanted: dict[str, Any] = {**SPEC, "tools": [look], "output_type": Reading}
        assert client.run_agent(**wanted).output == value
        assert client.start_agent(**wanted).result().output == value
        with client.stream_agent(**wanted) as run:
            assert "".join(run.text_stream) == '{"city": "Rome", "celsius": 31}'
            assert run.result().output == value
        assert run.result().output is run.result().output, "parsed once"
        session = client.create_session(system_prompt="x", tools=[look])
        assert session.send("x", output_type=Reading).output == value
        assert session.stream("x", output_type=Reading).result().output == value
        assert session.send("x").output is None
        assert "outputSchema" not in server.runs[-1].spec
        found = list(client.map(["a", "b"], system_prompt="x", tools=[look], output_type="Reading"))
        assert [each.output for each in found] == [value, value]


def test_without_a_type_nothing_is_parsed() -> None:
    with answering('{"a": 1}') as server, client_of(server) as client:
        found = client.run_agent(**SPEC, output_schema={"schema": {"type": "object"}})
        assert found.output is None
        assert parse_run_output(found) == {"a": 1}


def test_a_stream_whose_answer_does_not_fit_ends_well_and_its_result_raises() -> None:
    with answering(["Sorry, ", "no."]) as server, client_of(server) as client:
        with client.stream_agent(**SPEC, output_type=Reading) as run:
            assert [event.type for event in run][-1] == "result"
            with pytest.raises(MantyxParseError) as caught:
                run.result()
            assert caught.value.run_id == run.run_id
        texts: list[str] = []
        with client.stream_agent(**SPEC, output_type=Reading) as run, pytest.raises(MantyxParseError):
            texts.extend(run.text_stream)
        assert texts == ["Sorry, ", "no."]
        seen: list[str] = []
        with pytest.raises(MantyxParseError):
            client.run_agent(**SPEC, output_type=Reading, on_event=lambda event: seen.append(event.type))
        assert seen[-1] == "result"


# ------------------------------------------------------------- texts

FENCE_IN_STRING = json.dumps({"code": "```python\nprint()\n```\n````\n", "tail": "```"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n{"a": 1}\n\n', {"a": 1}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('\ufeff\n{"a": 1}', {"a": 1}),
        ('\ufeff \r\n```json\n{"a": 1}\n```\n', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```JSON\r\n{"a": 1}\r\n```\r\n', {"a": 1}),
        ('``` json \n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": 1}\n```', {"a": 1}),
        ('````json\n{"a": 1}\n````', {"a": 1}),
        ('```json\n{"a": 1}```', {"a": 1}),
        (FENCE_IN_STRING, json.loads(FENCE_IN_STRING)),
        (f"```json\n{FENCE_IN_STRING}\n```", json.loads(FENCE_IN_STRING)),
        (f"````\n{FENCE_IN_STRING}\n````", json.loads(FENCE_IN_STRING)),
        ('"```"', "```"),
        ("null", None),
        ("1e2", 100.0),
        ('"\\ud83d\\ude00"', "😀"),
    ],
)
def test_json_is_taken_whole_or_fenced_as_a_whole(text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "I cannot help with that.",
        '{"a": 1',
        '{"a": 1} Anything else?',
        'Here you are:\n```json\n{"a": 1}\n```',
        '```json\n{"a": 1}\n```\nAnything else?',
        '```json\n{"a": 1}',
        '{"a": 1}\n```',
        '```bash\nls\n```\n```json\n{"a": 1}\n```',
        '```bash\n{"a": 1}\n```',
        '```json\n{"a": 1}\n```\n```json\n{"b": 1}\n```',
        '````json\n{"a": 1}\n```',
        '``json\n{"a": 1}\n``',
        "```json\n```",
        "```json```",
        "```",
        "{'a': 1}",
        '{"a": NaN}',
        "Infinity",
        "-Infinity",
        "[" * 100_000 + "]" * 100_000,
        "1" * 5000 + ".",
    ],
    ids=lambda text: text[:30],
)
def test_what_is_not_json_as_a_whole_is_an_error_with_the_text(text: str) -> None:
    with pytest.raises(MantyxParseError, match="run run_1: the answer is not JSON") as caught:
        read(text)
    assert caught.value.text == text
    assert (caught.value.run_id, caught.value.code) == ("run_1", "output_parse_failed")
    with pytest.raises(MantyxParseError):
        read(text, Reading)


def test_a_long_answer_of_blanks_and_fences_is_refused_at_once() -> None:
    text = "```json\n" + " " * 2_000_000 + "`` " * 100_000
    with pytest.raises(MantyxParseError):
        read(text)


# ------------------------------------------------------------- errors

UNFIT: list[tuple[str, Any, str]] = [
    ("not JSON", Reading, f"I am sorry, {MARKER}."),
    ("cut JSON", Reading, f'{{"city": "{MARKER}'),
    ("wrong type", Reading, json.dumps({"city": "x", "celsius": MARKER})),
    ("missing", Reading, json.dumps({"city": MARKER})),
    ("wrong date", Reading, json.dumps({"city": "x", "celsius": 1, "day": MARKER})),
    ("wrong word", Literal["yes", "no"], json.dumps({"value": MARKER})),
    ("wrong member", Mood, json.dumps({"value": MARKER})),
    ("no form of a union", Union[int, Reading], json.dumps({"value": MARKER})),
    ("schema: wrong type", SCHEMA, json.dumps({"city": "x", "celsius": MARKER})),
    ("schema: enum", {"enum": ["a"]}, json.dumps(MARKER)),
    ("schema: pattern", {"pattern": "^a$"}, json.dumps(MARKER)),
    ("schema: anyOf", {"anyOf": [{"type": "integer"}, {"const": "x"}]}, json.dumps(MARKER)),
    ("schema: not", {"not": {"type": "string"}}, json.dumps(MARKER)),
]


@pytest.mark.parametrize(("wanted", "text"), [row[1:] for row in UNFIT], ids=[row[0] for row in UNFIT])
def test_the_text_is_in_the_attribute_alone(wanted: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with answering(text) as server, client_of(server) as client:
        with pytest.raises(MantyxParseError) as caught:
            client.run_agent(**SPEC, output_type=wanted)
        error = caught.value
        assert error.text == text
        assert error.run_id == server.runs[0].id
    assert error.run_id in str(error)
    shown = [str(error), repr(error), *traceback.format_exception(type(error), error, None), caplog.text]
    assert not [part for part in shown if MARKER in part or "Marker Street" in part]
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.text, again.run_id) == (MantyxParseError, str(error), text, error.run_id)


def test_the_reason_names_the_place() -> None:
    with pytest.raises(MantyxParseError, match="'celsius' must be a number, not a string"):
        read('{"city": "R", "celsius": "x"}', Reading)
    with pytest.raises(MantyxParseError, match="'celsius' must be at most 60"):
        read('{"city": "R", "celsius": 61}', SCHEMA)


def test_a_reply_that_is_no_answer_is_told_with_its_finish_reason() -> None:
    def message(reason: str) -> AssistantMessage:
        return AssistantMessage(1, "assistant_message", {}, {}, "x", 0, reason, ())

    with pytest.raises(MantyxParseError, match=r"not JSON at character 0 \(finish reason: content_filter\)$"):
        parse_run_output(result_of("x", message("end_turn"), message("content_filter")))
    with pytest.raises(MantyxParseError, match=r"character 0$"):
        parse_run_output(result_of("x", message("content_filter"), message("end_turn")))


REFUSAL = ["I cannot do that.", TurnEnd("refusal")]
TRUNCATION = ['{"city": "Rome"', Failure("cut short", error_class="truncation", finish_reason="max_tokens")]


@pytest.mark.parametrize("turn", [REFUSAL, TRUNCATION], ids=["refusal", "truncation"])
@pytest.mark.parametrize(
    "ask_for",
    [
        lambda client, wanted: client.run_agent(**SPEC, **wanted),
        lambda client, wanted: client.stream_agent(**SPEC, **wanted).result(),
        lambda client, wanted: client.create_session(system_prompt="x").send("x", **wanted),
        lambda client, wanted: list(client.map(["x"], system_prompt="x", **wanted)),
    ],
    ids=["run", "stream", "session", "map"],
)
def test_an_answer_that_was_refused_or_cut_is_an_error_of_the_run_and_never_half_parsed(
    turn: list[Any], ask_for: Callable[..., Any]
) -> None:
    with answering(turn) as server, client_of(server) as client, pytest.raises(MantyxRunError) as caught:
        ask_for(client, {"output_type": Reading})
    error = caught.value
    assert (error.partial_text, error.finish_reason) == (turn[0], turn[1].finish_reason)
    assert turn[0] not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.partial_text, str(again)) == (turn[0], str(error))


# ------------------------------------------------------------- parse_run_output


class Validator:
    """Something that can be called, and is no function."""

    def __call__(self, value: Any) -> Any:
        return ("validated", value)

    def check(self, value: Any) -> Any:
        return self(value)


def add(amount: int, value: int) -> int:
    return amount + value


@pytest.mark.parametrize(
    ("text", "validator", "value"),
    [
        ("1", None, 1),
        ("1", lambda value: value + 1, 2),
        ("1", partial(add, 4), 5),
        ("1", Validator(), ("validated", 1)),
        ("1", Validator().check, ("validated", 1)),
        ("[1, 2]", sum, 3),
        ("1", int, 1),
        ('{"a": 1}', dict, {"a": 1}),
        ("[1]", List[int], [1]),
        ("1", Optional[int], 1),
        ("1", UserId, 1),
        ("[1]", "List[int]", [1]),
        ("1", {"type": "integer"}, 1),
    ],
)
def test_parse_run_output_takes_functions_types_and_schemas(text: str, validator: Any, value: Any) -> None:
    assert read(text, validator) == value


def test_what_a_validator_raises_is_the_cause_and_not_the_message() -> None:
    def refuse(value: Any) -> None:
        raise LookupError(f"{value} is unknown")

    with pytest.raises(MantyxParseError, match=r"the validator refused the answer \(LookupError\)$") as caught:
        read(json.dumps(MARKER), refuse)
    assert isinstance(caught.value.__cause__, LookupError)
    assert MARKER not in str(caught.value)
    assert caught.value.text == json.dumps(MARKER)


def test_ctrl_c_in_a_validator_is_not_an_answer_that_does_not_fit() -> None:
    def press(value: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read("1", press)


@pytest.mark.parametrize("validator", [17, NO_TYPE, {"type": "nonsense"}])
def test_what_is_no_validator_is_refused(validator: Any) -> None:
    with pytest.raises(MantyxConfigError, match=r"^validator"):
        read("1", validator)
