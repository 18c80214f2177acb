"""The looms of the stand-in: enough to meet every rule of the documents."""

from __future__ import annotations

from typing import Any, Dict

from .engine import MAX_ASSET_BYTES, Agent, Ask, Code, Confirm, Loom, Tool

_OUTCOME = {
    "type": "object",
    "properties": {"outcome": {"enum": ["ready", "stuck"]}},
    "required": ["outcome"],
}
_IDS = {"type": "object", "properties": {"ids": {"type": "array"}}, "required": ["ids"]}
_ID = {"definitions": {"id": {"type": "integer"}}}
_WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}

QUESTIONS = (
    {
        "id": "when",
        "question": "Which day?",
        "isSkippable": False,
        "options": [{"id": "mo", "label": "Monday"}, {"id": "tu", "label": "Tuesday"}],
    },
    {"id": "note", "question": "Anything else?", "isSkippable": True},
)


def _save(given: Any) -> Any:
    if not isinstance(given["ids"], list):
        raise ValueError("ids is no list")
    return {"saved": len(given["ids"])}


def _echo(given: Any) -> Any:
    return {"echo": given}


def _break(given: Any) -> Any:
    raise RuntimeError("the tool broke")


SAVE = Tool("save_order", "Store the order", _IDS, _save)
ECHO = Tool("echo", "Say it again", _WORD, _echo)
SLOW = Tool("slow", "Take a while", _WORD, _echo, seconds=0.1)
LONG = Tool("long", "Take long", _WORD, _echo, seconds=20.0)
BROKEN = Tool("broken", "Fail", _WORD, _break)
FINISH = Tool("finish", "Close the books", _WORD, _echo, is_end_tool=True)
SEAL = Tool("seal", "Close the books without saying so", _WORD, _echo, is_end_tool=True, is_marked=False)
RANK = Tool("rank all", "Rank", {"type": "array", "items": {"$ref": "#/definitions/id"}, **_ID}, _echo)
HOLD = Tool("hold", "Wait for the test", _WORD, _echo, is_held=True)

PLANNER = Agent(
    "draft",
    "planner",
    "Propose the order of work.",
    _OUTCOME,
    tools=(SAVE, ECHO, SLOW, LONG, BROKEN, FINISH, SEAL, HOLD, RANK),
    skills=(
        {
            "name": "ordering",
            "description": "How to rank",
            "content": "Small things first.",
            "assets": [
                {"id": "asset_0", "name": "table.csv"},
                {"id": "asset_1", "name": "picture.png"},
                {"id": "asset_2", "name": "huge.bin"},
                {"id": "asset_3", "name": "full.txt"},
            ],
        },
    ),
    assets={
        "asset_0": b"id;size\n1;3\n",
        "asset_1": b"\x89PNG\xff\x00",
        "asset_2": b"x" * (MAX_ASSET_BYTES + 1),
        "asset_3": b"y" * MAX_ASSET_BYTES,
    },
)


def _agent(name: str, agent_id: str, instructions: str) -> Agent:
    return Agent(name, agent_id, instructions, _OUTCOME, tools=(ECHO, FINISH))


LOOMS: Dict[str, Loom] = {
    loom.name: loom
    for loom in (
        Loom("code", (Code("build", artifact={"size": 3}, record="REC-1"), Code("ship", artifact=[1, 2]))),
        Loom("many", tuple(Code(f"part{i}", artifact=i) for i in range(7))),
        Loom("ask", (Ask("ask", QUESTIONS), Code("after", artifact="done"))),
        Loom("kept", (Ask("ask", QUESTIONS), Code("after")), is_recoverable=True),
        Loom("confirm", (Code("propose"), Confirm("sure", "Ship 2.4?"), Code("after"))),
        Loom("release", (PLANNER, Code("after"))),
        Loom("gated", (Code("slow step", is_gated=True), Code("after"))),
        Loom("word", (Agent("say", "speaker", "Say yes or no.", {"enum": ["yes", "no"]}),)),
        Loom("pairs", (_agent("first", "planner", "Begin."), _agent("second", "planner", "Go on."))),
        Loom("exclusive", (Ask("ask", QUESTIONS),), is_exclusive=True),
        Loom("broken", (), is_broken=True),
        Loom(
            "three",
            (
                _agent("plan", "planner", "Plan the release."),
                Ask("ask", QUESTIONS),
                _agent("write", "writer", "Write the notes."),
                Confirm("sure", "Publish the notes?"),
                _agent("check", "checker", "Check the notes."),
                Code("publish", artifact={"published": True}),
            ),
        ),
    )
}
