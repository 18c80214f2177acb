"""Lend an agent the tools of an MCP server that runs on this machine, in a session that keeps the server running.

Without a command the server is this very file, started a second time: the whole of a stdio server is in `serve`,
written with the standard library alone.

    python examples/mcp_tools.py
    python examples/mcp_tools.py --ask "Which directories are allowed?" npx -y @modelcontextprotocol/server-filesystem .
"""

import argparse
import json
import sys
from typing import Any

HEIGHTS = {"Eiger": 3967, "Mönch": 4110, "Jungfrau": 4158}
TOOL = {
    "name": "mountain-height",
    "description": "Look up the height of a mountain, in metres.",
    "inputSchema": {
        "type": "object",
        "properties": {"mountain": {"type": "string", "description": "The mountain's name, in double quotes."}},
        "required": ["mountain"],
    },
}


def serve() -> None:
    """Answer MCP requests on standard input, one a line, until it ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = respond(message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


def respond(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        server = {"name": "mountains", "version": "1.0"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}}
    if method == "tools/list":
        return {"result": {"tools": [TOOL]}}
    if method == "tools/call":
        mountain = params["arguments"]["mountain"]
        height = HEIGHTS.get(mountain)
        text = f"{height} m" if height else f"there is no mountain called {mountain} here"
        return {"result": {"content": [{"type": "text", "text": text}], "isError": height is None}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Lend an agent the tools of an MCP server.")
    parser.add_argument("--ask", action="append", help="what to ask the agent; may be given more than once")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the server's command line; without it, one of ours")
    given = parser.parse_args()
    if given.command == ["serve"]:
        serve()
    else:
        ask(given.command, given.ask)


def ask(command: list[str], questions: list[str]) -> None:
    # Imported here: the server does not need them, nor sees a PYTHONPATH by which they might be found.
    from account import connect

    from mantyx_sync import LocalToolCall, LocalToolResultIn, MantyxError, define_local_mcp

    name = "server" if command else "mountains"
    command = command or [sys.executable, __file__, "serve"]
    questions = questions or ['How high is the mountain "Jungfrau"?', 'And what is the height of "Everest"?']

    # A recipe: nothing is started yet. Names may have letters, digits and _ alone, so that the tool will be
    # known as mountains_mountain_height; calls go to it under its own name.
    server = define_local_mcp(name=name, command=command, prefix=True, timeout=30)
    with connect() as client:
        try:  # the server is started here, asked for its catalog, and kept for all messages of the session
            session = client.create_session(system_prompt="Use the tools.", tools=[server])
        except MantyxError as error:
            sys.exit(str(error))
        with session:
            for question in questions:
                print(f"You: {question}")
                with session.stream(question) as run:
                    for event in run:
                        if isinstance(event, LocalToolCall):
                            print(f"[tool call]   {event.name}({event.args}) at {event.mcp_server}")
                        elif isinstance(event, LocalToolResultIn):
                            print(f"[tool result] {event.error or event.output}")
                    print(f"Agent: {run.result().text}\n")
            session.end()  # which ends the server as well; so would leaving the block, an error or Ctrl-C


if __name__ == "__main__":
    main()
