"""The stand-in as a stdio proxy, written by hand with the standard library: the engine behind MCP's handshake era.

    python -m tests.loom_double.proxy [--die-at TOOL FILE]

With `--die-at` it exits when TOOL is called, unless FILE is there, which it makes first: the next one lives on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Mapping

from .engine import TOOLS, BadArguments, Engine, Refused, input_schema
from .looms import LOOMS

_writing = threading.Lock()


def _result(body: Mapping[str, Any], is_error: bool) -> Dict[str, Any]:
    content = [{"type": "text", "text": json.dumps(body)}]
    return {"content": content, "structuredContent": body, "isError": is_error}


def _respond(engine: Engine, method: str, params: Mapping[str, Any]) -> Dict[str, Any]:
    if method == "initialize":
        info = {"name": "loom-double", "version": "1"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": name, "inputSchema": input_schema(name)} for name in TOOLS]}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "Method not found"}}
    try:
        return {"result": _result(engine.call(params["name"], params.get("arguments", {})), False)}
    except Refused as refused:
        return {"result": _result(refused.payload, True)}
    except BadArguments as error:
        return {"error": {"code": -32602, "message": str(error)}}


def _answer(engine: Engine, message: Mapping[str, Any]) -> None:
    answer = _respond(engine, message["method"], message.get("params", {}))
    with _writing:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


def main() -> None:
    """Serve until the input ends."""
    engine = Engine(LOOMS)
    deadly, sign = (sys.argv[2], Path(sys.argv[3])) if len(sys.argv) > 2 else ("", Path())
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("params", {}).get("name") == deadly and not sign.exists():
            sign.touch()
            os._exit(7)
        if "id" in message:
            threading.Thread(target=_answer, args=(engine, message), daemon=True).start()


if __name__ == "__main__":
    main()
