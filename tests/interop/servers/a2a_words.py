"""What the agents of the official A2A packages do for each word they are told; the same for every version of them.

A kit is a version's way to do it: `reply`, `begin`, `status`, `artifact`, `announce`, and what arrived (`text`,
`kinds`, `is_continued`).
"""

import asyncio
from typing import Any

LONG_S = 60.0


async def act(kit: Any) -> None:
    word = kit.text.split("\n")[0]
    if kit.is_continued:
        await go_on(kit, word)
    elif word.startswith("message "):
        await kit.reply(f"direct reply to {word[8:]}")
    elif word == "kinds":
        await kit.reply(" ".join(kit.kinds))
    elif word == "crash":
        raise RuntimeError("the agent fell over")
    else:
        await kit.begin()
        await kit.status("working", "on it")
        await WORDS[word](kit)


async def go_on(kit: Any, word: str) -> None:
    if word.startswith("re-announced "):
        await kit.announce()
        await asyncio.sleep(0.3)
    await kit.status("working")
    await kit.artifact([("text", f"you chose {word}")])
    await kit.status("completed")


async def parts(kit: Any) -> None:
    await kit.artifact(
        [
            ("text", "artifact text"),
            ("file", b"abc", "f.txt", "text/plain"),
            ("link", "https://files.example/y.pdf", "y.pdf", "application/pdf"),
            ("data", {"answer": [1.5, None, "é\u2028"]}),
        ]
    )
    await kit.status("completed", "all done")


async def chunks(kit: Any) -> None:
    for i, text in enumerate(("Hel", "lo, ", "world")):
        await kit.artifact([("text", text)], artifact_id="a", append=i > 0, last=i == 2)
    await kit.status("completed")


async def said(kit: Any) -> None:
    await kit.status("completed", "said in the status")


async def slow(kit: Any) -> None:
    await asyncio.sleep(0.8)
    await kit.artifact([("text", "slow but sure")])
    await kit.status("completed")


async def forever(kit: Any) -> None:
    await asyncio.sleep(LONG_S)
    await kit.status("completed", "nobody waited that long")


async def ask(kit: Any) -> None:
    await kit.status("input-required", "Which one?")


async def failed(kit: Any) -> None:
    await kit.artifact([("text", "half of it")])
    await kit.status("failed", "disk full")


async def rejected(kit: Any) -> None:
    await kit.status("rejected", "not for you")


async def auth(kit: Any) -> None:
    await kit.status("auth-required", "who are you?")


async def large(kit: Any) -> None:
    await kit.artifact([("text", "x" * 3_000_000)])
    await kit.status("completed")


WORDS = {
    "parts": parts,
    "chunks": chunks,
    "said": said,
    "slow": slow,
    "forever": forever,
    "ask": ask,
    "failed": failed,
    "rejected": rejected,
    "auth": auth,
    "large": large,
}
