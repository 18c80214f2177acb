"""An MCP client made with the official Python package, 1.x or newer: everything the gateway offers, all at once.

    python gateway_mcp.py URL KEY [MODE]

Prints one line of JSON: what it saw, for the test to compare with what every client has to see.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any, AsyncIterator

import mcp
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

ORDERS = [str(number) for number in range(30)]


@contextlib.asynccontextmanager
async def connected(url: str, key: str, mode: str) -> AsyncIterator[tuple[Any, str]]:
    """Yield a client with the methods of a session, and the revision it speaks."""
    async with create_mcp_http_client(headers={"Authorization": f"Bearer {key}"}) as http:
        if hasattr(mcp, "Client"):
            async with mcp.Client(streamable_http_client(url, http_client=http), mode=mode) as client:
                yield client, str(client.protocol_version)
        else:
            async with (
                streamable_http_client(url, http_client=http) as (incoming, outgoing, _),
                mcp.ClientSession(incoming, outgoing) as session,
            ):
                opened = await session.initialize()
                yield session, str(opened.protocolVersion)


def dumped(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def told(call: Any) -> Any:
    """Return what came of a call: its text with whether it is an error, or the message of an error."""
    try:
        result = dumped(await call)
    except Exception as error:
        return ["raised", str(error)]
    if "content" in result:
        return [bool(result.get("isError")), *[block["text"] for block in result["content"]]]
    if "contents" in result:
        return [[entry["uri"], entry["mimeType"], entry["text"]] for entry in result["contents"]]
    return [[entry["role"], entry["content"]["text"]] for entry in result["messages"]]


async def main(url: str, key: str, mode: str) -> None:
    async with connected(url, key, mode) as (client, version):
        seen: dict[str, Any] = {"version": version}
        seen["tools"] = [tool["name"] for tool in dumped(await client.list_tools())["tools"]]
        seen["resources"] = [entry["uri"] for entry in dumped(await client.list_resources())["resources"]]
        seen["prompts"] = [entry["name"] for entry in dumped(await client.list_prompts())["prompts"]]
        waiting = {
            **{f"order {order}": client.call_tool("get_order", {"order_id": order}) for order in ORDERS},
            "failing": client.call_tool("get_order", {"order_id": "nope"}),
            "raising": client.call_tool("breaks", {}),
            "invalid": client.call_tool("get_order", {"order_id": 5}),
            "late": client.call_tool("hangs", {}),
            "all orders": client.read_resource("orders://all"),
            "broken resource": client.read_resource("orders://broken"),
            "prompt": client.get_prompt("summarise", {"order_id": "7"}),
            "broken prompt": client.get_prompt("breaking", {}),
        }
        answers = await asyncio.gather(*[told(call) for call in waiting.values()])
        seen["answers"] = dict(zip(waiting, answers))
    print("SEEN " + json.dumps(seen), flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "auto"))
