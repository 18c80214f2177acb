"""An MCP server over stdio with a catalog of its own: `python catalog_server.py NAME LOG [TOOL or JSON of a tool ...]`.

Standard library alone; speaks the handshake revisions. Every message it gets is a line of LOG, and `started PID` one.
What a tool does goes by the end of its name, behind the last of `.-_`: echo, fail, refuse, die, never, pid, picture,
huge, odd. Any other answers with its own name.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

NAME, LOG, *GIVEN = sys.argv[1:]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def entry(given: str) -> dict[str, Any]:
    if given.startswith("{"):
        loaded: dict[str, Any] = json.loads(given)
        return loaded
    return {"name": given, "description": f"The tool {given}.", "inputSchema": SCHEMA, "annotations": {"x": 1}}


TOOLS = [entry(given) for given in GIVEN]


def note(line: str) -> None:
    with open(LOG, "a") as log:
        log.write(line + "\n")


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


def file(size: int, mime_type: str) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(bytes(size)).decode(), "mimeType": mime_type}


def call(name: str, arguments: dict[str, Any]) -> Any:
    what = name.replace(".", "_").replace("-", "_").rpartition("_")[2]
    if what == "echo":
        return text(str(arguments.get("text")))
    if what == "fail":
        return text("the disk is full", isError=True)
    if what == "refuse":
        return {"code": -32602, "message": "no such file"}
    if what == "die":
        os.write(2, b"password=hunter2\n")
        os._exit(3)
    if what == "never":
        return None
    if what == "pid":
        return text(str(os.getpid()))
    if what == "picture":
        return {"content": [{"type": "text", "text": "a picture"}, file(3, "image/png")]}
    if what == "huge":
        return {"content": [file(4 << 20, "image/png"), file(2 << 20, "image/png"), file(1, "application/zip")]}
    if what == "odd":
        return {"content": [], "structuredContent": {"n": 1}}
    return text(f"this is {name}")


def answer(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        info = {"name": f"{NAME}-server", "version": "1.0", "vendor": "tests"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return {"code": -32601, "message": "Method not found"}


def main() -> None:
    note(f"started {os.getpid()}")
    for line in sys.stdin:
        note(line.strip())
        message = json.loads(line)
        if "id" in message and "method" in message:
            found = answer(message["method"], message.get("params", {}))
            if found is not None:
                kind = "error" if "code" in found else "result"
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], kind: found}), flush=True)
    note("ended")


if __name__ == "__main__":
    main()
