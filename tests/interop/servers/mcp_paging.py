"""An MCP server made with the low level of the official Python package, whose lists come in pages; over stdio.

The cursor of the second page is the empty text, which is a cursor like any other.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

FOLLOWING = {None: "", "": "p3", "p3": None}
CONTENT = {None: ["a", "b"], "": [], "p3": ["c"]}


def tools(cursor: str | None) -> types.ListToolsResult:
    entries: list[Any] = [{"name": name, "inputSchema": {"type": "object"}} for name in CONTENT[cursor]]
    return types.ListToolsResult.model_validate({"tools": entries, "nextCursor": FOLLOWING[cursor]})


def resources(cursor: str | None) -> types.ListResourcesResult:
    entries: list[Any] = [{"name": name, "uri": f"memo://{name}"} for name in CONTENT[cursor]]
    return types.ListResourcesResult.model_validate({"resources": entries, "nextCursor": FOLLOWING[cursor]})


def prompts(cursor: str | None) -> types.ListPromptsResult:
    following = cursor or "again"  # a server that has lost its place
    return types.ListPromptsResult.model_validate({"prompts": [{"name": "p"}], "nextCursor": following})


def made() -> Server[Any]:
    try:

        async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
            return tools(params.cursor if params else None)

        async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
            return resources(params.cursor if params else None)

        async def list_prompts(context: Any, params: Any) -> types.ListPromptsResult:
            return prompts(params.cursor if params else None)

        return Server(
            "paging", on_list_tools=list_tools, on_list_resources=list_resources, on_list_prompts=list_prompts
        )
    except TypeError:  # 1.x
        server: Any = Server("paging")

        async def old_tools(request: types.ListToolsRequest) -> types.ListToolsResult:
            return tools(request.params.cursor if request.params else None)

        async def old_resources(request: types.ListResourcesRequest) -> types.ListResourcesResult:
            return resources(request.params.cursor if request.params else None)

        async def old_prompts(request: types.ListPromptsRequest) -> types.ListPromptsResult:
            return prompts(request.params.cursor if request.params else None)

        server.list_tools()(old_tools)
        server.list_resources()(old_resources)
        server.list_prompts()(old_prompts)
        return server


async def main() -> None:
    server = made()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
