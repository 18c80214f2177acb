"""What an agent registers: the form it has on the wire, and what is refused before anything is sent."""

from __future__ import annotations

import contextlib
import datetime
import enum
import http.client
import json
from dataclasses import dataclass
from typing import Any, Callable, Optional

import pytest

from mantyx_sync import MantyxConfigError, ToolContext, define_local_tool, mantyx_tool, tool
from mantyx_sync.local import GatewayPlan, LocalGateway
from mantyx_sync.local.gateway_json import parse
from mantyx_sync.local.gateway_registration import Registration as GatewayRegistration
from mantyx_sync.local.gateway_registration import Unregistrable
from mantyx_sync.spacefix import Agent, PlanLimits, Prompt, Resource, check_registration, expose, prompt, resource
from mantyx_sync.spacefix.registration import Registration
from mantyx_sync.transport.http import encode_json


@tool
def get_order(id: str) -> dict[str, Any]:
    """Look up a single order by its id."""
    return {"id": id}


def nothing() -> None:
    """Do nothing."""


# ------------------------------------------------------------------------------------------- the wire


def test_the_documents_registration_comes_out_as_it_is_shown() -> None:
    agent = Agent([get_order], url="http://gateway.test")

    @agent.resource("orders://all", name="All orders", description="Every order", mime_type="application/json")
    def all_orders() -> list[Any]:
        return []

    @agent.prompt(title="Summarise order")
    def summarise_order(id: str) -> str:
        """Summarise an order.

        Args:
            id: Order id
        """
        return id

    assert agent.check() == {
        "tools": [
            {
                "name": "get_order",
                "description": "Look up a single order by its id.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"id": {"type": "string"}},
                    "required": ["id"],
                    "additionalProperties": False,
                },
            }
        ],
        "resources": [
            {
                "uri": "orders://all",
                "name": "All orders",
                "description": "Every order",
                "mimeType": "application/json",
            }
        ],
        "prompts": [
            {
                "name": "summarise_order",
                "title": "Summarise order",
                "description": "Summarise an order.",
                "arguments": [{"name": "id", "description": "Order id", "required": True}],
            }
        ],
    }


def test_decorators_leave_functions_as_they_are() -> None:
    agent = Agent()

    @agent.tool
    def plain() -> int:
        return 1

    @agent.tool(name="other-name", annotations={"title": "Other"})
    @tool
    def decorated() -> int:
        return 2

    @agent.resource("a://b")
    @agent.prompt()
    def both() -> str:
        return "x"

    assert (plain(), decorated(), both()) == (1, 2, "x")
    body = agent.check()
    assert [item["name"] for item in body["tools"]] == ["plain", "other-name"]
    assert body["resources"] == [{"uri": "a://b", "name": "both"}]
    assert body["prompts"] == [{"name": "both"}]


class Colour(enum.Enum):
    RED = "red"


def test_a_prompts_arguments_come_from_its_function() -> None:
    def ask(
        topic: str, colour: Colour, day: datetime.date, mood: Optional[str] = None, note: Any = "", *, tone: str = "dry"
    ) -> str:
        return topic

    made = Prompt(ask)
    assert [(item["name"], item.get("required", False)) for item in made.arguments] == [
        ("topic", True),
        ("colour", True),
        ("day", True),
        ("mood", False),
        ("note", False),
        ("tone", False),
    ]


def test_a_context_is_no_argument() -> None:
    def ask(topic: str, context: ToolContext) -> str:
        return topic

    assert [item["name"] for item in Prompt(ask).arguments] == ["topic"]
    assert Resource("a://b", lambda uri: uri, name="x").to_wire() == {"uri": "a://b", "name": "x"}


def test_a_tool_without_a_schema_leaves_it_to_the_gateway() -> None:
    free = define_local_tool(name="free", execute=lambda arguments: arguments)
    assert Registration([free]).to_wire()["tools"] == [{"name": "free"}]


# ------------------------------------------------------------------------------------------- annotations


def test_annotations_that_the_gateway_keeps_are_sent_and_others_dropped() -> None:
    made = expose(
        get_order,
        annotations={"title": "Orders", "read_only_hint": True, "openWorldHint": False, "vendor": {"x": 1}},
    )
    assert made.to_wire()["annotations"] == {"title": "Orders", "readOnlyHint": True, "openWorldHint": False}


@pytest.mark.parametrize(
    ("read_only", "annotations", "wire"),
    [
        (False, None, None),
        (True, None, {"readOnlyHint": True}),
        (True, {"readOnlyHint": False}, {"readOnlyHint": False}),
        (False, {"idempotent_hint": True}, {"idempotentHint": True}),
        (False, {"unknown": 1}, None),
    ],
)
def test_a_read_only_tool_says_so_unless_told_otherwise(
    read_only: bool, annotations: Optional[dict[str, Any]], wire: Optional[dict[str, Any]]
) -> None:
    made = expose(tool(nothing, read_only=read_only), annotations=annotations)
    assert made.to_wire().get("annotations") == wire


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"readOnlyHint": "yes"}, "tool 'get_order': annotation 'readOnlyHint': got 'yes', must be True or False"),
        ({"destructive_hint": 1}, "tool 'get_order': annotation 'destructiveHint': got 1, must be True or False"),
        ({"title": 5}, "tool 'get_order': annotation 'title': got 5, must be a string"),
        ({"title": "é" * 201}, "tool 'get_order': annotation 'title': got 201 characters, must have at most 200"),
        ({"title": "😀" * 101}, "tool 'get_order': annotation 'title': got 202 characters, must have at most 200"),
        ({"readonlyHint": True}, "unknown key 'readonlyHint'; did you mean 'readOnlyHint'?"),
        (["title"], "tool 'get_order': annotations: got list, must be a mapping"),
    ],
)
def test_annotations_of_a_wrong_type_name_the_tool(annotations: Any, message: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        expose(get_order, annotations=annotations)
    assert message in str(caught.value)


# ------------------------------------------------------------------------------------------- refusals


def body(**fields: Any) -> dict[str, Any]:
    return {"tools": [], **fields}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "tools: got nothing, must be an array"),
    ({"tools": {}}, "tools: got an object, must be an array"),
    (body(resources={}), "resources: got an object, must be an array"),
    (body(prompts="x"), "prompts: got a string, must be an array"),
    (body(prompts=[{"name": "x y"}]), "a prompt's name: got 'x y', must be 1 to 64 letters"),
    (body(prompts=[5]), "a prompt's name: got None"),
    (body(prompts=[{"name": "p", "arguments": {}}]), "prompt 'p': arguments: got an object, must be an array"),
    (body(resources=[{"name": "x"}]), "a resource's uri: got None, must be a string of 1 to 2048 characters"),
    (body(resources=[{"uri": ""}]), "a resource's uri: got ''"),
    (body(resources=[{"uri": "a:" + "b" * 2047}]), "a resource's uri: got 'a:bbb"),
    (body(resources=["a://b"]), "a resource's uri: got None"),
    (body(resources=[{"uri": "a://b", "name": 5}]), "resource 'a://b': name: got 5, must be a string"),
    (body(resources=[{"uri": "a://b"}, {"uri": "a://b"}]), "resources: got 'a://b' twice, must have each uri once"),
    (body(resources=[{"uri": f"a://{i}"} for i in range(1001)]), "resources: got 1001, must be at most 1000"),
    (body(tools=[{"name": f"t{i}"} for i in range(257)]), "tools: got 257, must be at most 256"),
    (body(tools=[{"name": "bad name"}]), "a tool's name: got 'bad name', must be 1 to 64 letters, digits, _ and -"),
    (body(tools=[{"name": "x" * 65}]), "a tool's name: got 'xxx"),
    (body(tools=[{"name": "t", "inputSchema": {"type": "nonsense"}}]), "tool 't': it is not a valid JSON Schema"),
    (body(tools=[{"name": "t", "inputSchema": []}]), "tool 't': a JSON Schema is a mapping"),
    (
        body(tools=[{"name": "t", "inputSchema": {"properties": {"a": {"$ref": "#/$defs/Gone"}}}}]),
        "tool 't': the schema is not valid: the reference '#/$defs/Gone' leads nowhere within it",
    ),
    (body(tools=[{"name": "t", "inputSchema": {"$ref": "http://x.test/s.json"}}]), "'http://x.test/s.json' leads"),
    (body(tools=[{"name": "t", "annotations": {"title": 5}}]), "tool 't': annotations.title: got a number"),
    (body(tools=[{"name": "t", "annotations": {"readOnlyHint": 1}}]), "tool 't': annotations.readOnlyHint: got 1"),
    (body(tools=[{"name": "t", "annotations": []}]), "tool 't': annotations: got an array, must be an object"),
]


@pytest.mark.parametrize(("registration", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_the_gateway_refuses_is_refused_here(registration: dict[str, Any], message: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        check_registration(registration)
    assert message in str(caught.value)


ORDER: list[tuple[str, dict[str, Any]]] = [
    ("the registration", {"filler": "x" * 600_000}),
    ("tools", {"tools": 5}),
    ("resources", {"resources": 5}),
    ("prompts", {"prompts": 5}),
    ("a prompt's name", {"prompts": [{"name": ""}]}),
    ("a resource's uri", {"resources": [{"uri": ""}]}),
    ("tools: got 257", {"tools": [{"name": ""}] * 257}),
    ("a tool's name", {"tools": [{"name": ""}]}),
]


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_the_first_thing_in_the_gateways_order_is_what_is_named(place: int) -> None:
    everything: dict[str, Any] = {}
    for _, wrong in reversed(ORDER[place:]):
        everything.update(wrong)
    with pytest.raises(MantyxConfigError) as caught:
        check_registration({"tools": [], **everything})
    assert str(caught.value).startswith(ORDER[place][0])


def test_a_schema_may_have_as_many_bytes_as_the_plan_allows() -> None:
    def registration(size: int) -> dict[str, Any]:
        schema = {"description": "é"}
        schema["description"] += "x" * (size - len('{"description":"é"}'.encode()))
        return body(tools=[{"name": "t", "inputSchema": schema}])

    check_registration(registration(65_536))
    with pytest.raises(MantyxConfigError, match=r"tool 't': schema: got 65537 bytes, must have at most 65536"):
        check_registration(registration(65_537))
    check_registration(registration(65_537), PlanLimits(max_schema_bytes=70_000))


def test_a_registration_that_is_too_large_names_its_largest_tool() -> None:
    large = [{"name": f"t{i}", "inputSchema": {"description": "x" * 60_000}} for i in range(9)]
    large.append({"name": "huge", "inputSchema": {"description": "x" * 65_000}})
    with pytest.raises(MantyxConfigError, match=r"at most 524288; the largest tool is 'huge' with 650\d\d bytes"):
        check_registration(body(tools=large))


def test_more_tools_are_fine_where_the_plan_has_them() -> None:
    tools = [{"name": f"t{i}"} for i in range(257)]
    check_registration(body(tools=tools), PlanLimits(max_tools=1000))


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"A": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/A"}}},
        {"properties": {"$ref": {"type": "string"}, "id": {"type": "string"}}},
        {"definitions": {"a/b": {}}, "$ref": "#/definitions/a~1b"},
        {"$ref": "#"},
        {"$id": "http://x.test/root.json", "properties": {"a": {"$ref": "http://x.test/root.json"}}},
        {"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}},
        {"default": {"$ref": "nowhere"}},
        {"allOf": [{"type": "object"}, {"$ref": "#/allOf/0"}]},
    ],
)
def test_references_that_a_compiler_of_schemas_takes_are_taken(schema: dict[str, Any]) -> None:
    check_registration(body(tools=[{"name": "t", "inputSchema": schema}]))


def test_of_two_tools_with_one_name_the_later_is_served(caplog: pytest.LogCaptureFixture) -> None:
    def one() -> int:
        return 1

    made = Registration([expose(one, name="same"), expose(get_order, name="same")], prompts=[Prompt(nothing)] * 2)
    assert [item.tool for item in made.tools] == [get_order]
    assert "two tools are named 'same'; the later one replaces the earlier" in caplog.text
    assert len(made.prompts) == 1


async def asynchronous() -> None: ...


@dataclass
class Thing:
    a: int


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Agent(tools=get_order), "tools: got FunctionTool, must be a list of tools"),
        (lambda: Agent([5]), "tools: a int is no tool"),
        (lambda: Agent([mantyx_tool("t1")]), "tools: got a tool of kind 'mantyx', must be functions or tools"),
        (lambda: Agent([lambda: 1]), "the function's name '<lambda>' cannot be a tool's name"),
        (lambda: Agent([asynchronous]), "it is an async function"),
        (lambda: Agent([expose(get_order, name="bad name")]), "a tool's name: got 'bad name', must be 1 to 64"),
        (lambda: Agent(resources=[nothing]), "resources: got function, must hold Resource objects"),
        (lambda: Agent(prompts=[nothing]), "prompts: got function, must hold Prompt objects"),
        (lambda: resource("")(nothing), "a resource's uri: got '', must be a non-empty string"),
        (lambda: resource("a://b")(get_order), "resource 'a://b': its function: got the parameter 'id'"),
        (lambda: resource("a://b", name=5)(nothing), "resource 'a://b': name: got 5"),  # type: ignore[arg-type]
        (lambda: resource("a://b")(asynchronous), "resource 'a://b': it is an async function"),
        (lambda: resource("a://b")(5), "resource 'a://b': handler: got 5, must be a function"),  # type: ignore[arg-type]
        (lambda: resource(nothing), "a resource's uri: got a function, must be its address: @resource("),  # type: ignore[arg-type]
        (lambda: Agent().resource(nothing), "a resource's uri: got a function"),  # type: ignore[arg-type]
        (lambda: prompt(name="x y")(nothing), "a prompt's name: got 'x y'"),
        (lambda: prompt("x y"), "prompt: got 'x y', must be a function; options have names: @prompt(title=…)"),  # type: ignore[call-overload]
        (lambda: Agent().prompt("x y"), "prompt: got 'x y', must be a function; options have names: @agent.prompt("),  # type: ignore[type-var]
        (lambda: prompt(title=5)(nothing), "prompt 'nothing': title: got 5, must be a string"),  # type: ignore[arg-type]
        (lambda: expose(get_order, timeout=0), "tool 'get_order': timeout: got 0, must be a number of seconds above 0"),
        (lambda: expose(get_order, max_concurrency=0), "tool 'get_order': max_concurrency: got 0"),
        (lambda: expose(get_order, parameters={}), "parameters: got a schema, must be left out for a tool"),
        (lambda: Agent(url="gateway.test"), "url: got 'gateway.test', must be an absolute URL such as https://api."),
        (lambda: Agent(url="https://a:b@gateway.test"), "url: carries credentials"),
        (lambda: Agent(agent_key="a", key_source=str), "agent_key and key_source: got 2, give one of them"),
        (lambda: Agent(agent_key="a\nb"), "holds a character no header can carry"),
        (lambda: Agent(workers=0), "max_workers: got 0, must be a whole number from 1"),
        (lambda: Agent(workers="4"), "workers: got '4', must be a whole number above 0, a WorkerPool or None"),  # type: ignore[arg-type]
        (lambda: Agent(call_timeout=-1), "call_timeout: got -1, must be a number of seconds above 0"),
        (lambda: Agent(stream_idle_timeout=float("inf")), "stream_idle_timeout: got inf, must be at most"),
        (lambda: Agent(on_connect=5), "on_connect: got 5, must be a function"),  # type: ignore[arg-type]
        (lambda: Agent(default_headers={"Authorization": "x"}), "default_headers: must not hold Authorization"),
        (lambda: Agent(plan_limits=5), "plan_limits: got 5, must be PlanLimits"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_in_a_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("hint", [int, list[str], bool, dict[str, str], Thing])
def test_a_prompt_parameter_that_no_text_fits_is_refused(hint: Any) -> None:
    def ask(count: Any) -> str:
        return ""

    ask.__annotations__["count"] = hint
    with pytest.raises(MantyxConfigError, match=r"prompt 'ask': parameter 'count': .* must be str"):
        Prompt(ask)


def test_names_with_a_dash_are_possible_here() -> None:
    made = expose(lambda x: x, name="get-order", parameters={"type": "object"})
    assert made.to_wire() == {"name": "get-order", "inputSchema": {"type": "object"}}
    assert made.answer({"x": 4}, ToolContext()) == 4
    with pytest.raises(Exception, match="tool 'get-order': arguments do not match") as caught:
        expose(get_order, name="get-order").answer({}, ToolContext())
    assert "get_order" not in str(caught.value)


# ------------------------------------------------------------------------------------------- the gateway's own view


def schema_of(size: int, char: str) -> dict[str, Any]:
    """A schema whose text has just about so many bytes."""
    room = size - len(encode_json({"type": "object", "title": ""}))
    return {"type": "object", "title": char * (room // len(encode_json(char)[1:-1]))}


def body_of(size: int, char: str) -> dict[str, Any]:
    def filled(text: str) -> dict[str, Any]:
        return body(tools=[{"name": "t", "description": text}], resources=[], prompts=[])

    return filled(char * ((size - len(encode_json(filled("")))) // len(encode_json(char)[1:-1])))


NAMES = ["a" * 64, "a" * 65, "", "a b", "é", "a\n", "\u0661", "-", "A-1_b", "a\0", 5, None]
URIS = ["a" * 2048, "a" * 2049, "", "😀" * 1024, "😀" * 1025, "\ud800" * 2048, "\ud800" * 2049, " ", "\n", 5, None]
EDGES: list[dict[str, Any]] = [
    *(body(tools=[{"name": name}]) for name in NAMES),
    *(body(prompts=[{"name": name}]) for name in NAMES),
    *(body(tools=[{"name": f"t{i}"} for i in range(count)]) for count in (256, 257)),
    *(body(resources=[{"uri": f"a:{i}"} for i in range(count)]) for count in (1000, 1001)),
    *(body(resources=[{"uri": uri}]) for uri in URIS),
    *(
        body(tools=[{"name": "t", "inputSchema": schema_of(size, char)}])
        for size in (65_536, 65_537, 65_542)
        for char in ("x", "é", "😀", "\ud800", '"', "\u2028")
    ),
    *(body(tools=[{"name": "t", "annotations": {"title": title}}]) for title in ("a" * 200, "😀" * 100, "😀" * 101)),
    *(body_of(size, char) for size in (512 * 1024, 512 * 1024 + 1, 512 * 1024 + 6) for char in ("x", "\ud800")),
]


@pytest.mark.parametrize(
    "registration", EDGES, ids=lambda registration: str(registration)[:60].encode("unicode_escape")
)
def test_agent_and_gateway_draw_each_limit_at_the_same_place(registration: dict[str, Any]) -> None:
    written = encode_json(registration)
    taken = len(written) <= 512 * 1024
    with contextlib.suppress(Unregistrable):
        GatewayRegistration.read(parse(written), GatewayPlan())
        with contextlib.ExitStack() as stack:
            if not taken:
                stack.enter_context(pytest.raises(MantyxConfigError, match="the registration: got 5242"))
            check_registration(registration)
        return
    with pytest.raises(MantyxConfigError):
        check_registration(registration)


def test_a_prompt_is_made_by_the_bare_decorator_as_well() -> None:
    agent = Agent()

    @agent.prompt
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    assert greet("Ann") == "Hello Ann"
    assert agent.check()["prompts"] == [prompt(greet).to_wire()]


def test_the_embedded_gateway_agrees_on_every_refusal() -> None:
    """What is refused here is refused there as well, and the body that comes out here is taken."""
    with LocalGateway(plan=GatewayPlan(max_connects_per_minute=1000)) as gateway:
        project = gateway.add_project()

        def status(registration: object) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10.0)
            with contextlib.closing(connection):
                headers = {"Authorization": f"Bearer {project.agent_key}", "Content-Type": "application/json"}
                connection.request("POST", "/agent/connect", json.dumps(registration).encode(), headers)
                return connection.getresponse().status

        assert [message for registration, message in REFUSED if status(registration) != 400] == []
        assert status({"tools": [], "filler": "x" * 600_000}) == 413
        agent = Agent([get_order, expose(get_order, name="with-dash", annotations={"title": "x", "later": 1})])
        agent.resource("a://" + "b" * 2044)(nothing)
        agent.prompt()(nothing)
        assert status(agent.check()) == 200
