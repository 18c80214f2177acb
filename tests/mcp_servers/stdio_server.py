"""A server over stdio whose tools do what servers do to their clients: `python stdio_server.py [option ...]`.

It knows nothing of the package under test, and reads and writes bytes. Options, in any order:

    stateless        speaks the stateless revision (else the handshake ones, and refuses to be probed)
    ignore-eof       goes on when its input ends
    ignore-term      ignores SIGTERM
    marker=FILE      writes FILE when its input ends, after a quarter of a second, and then exits
    child            starts a child that inherits its pipes and waits for nothing
    banner           prints rubbish of all kinds before and between messages
    die-at=METHOD    exits with code 3 when that method is asked for, with words on stderr
    silent-at=METHOD never answers that method
    log=FILE         appends every line it reads to FILE
    threads          answers every call on a thread of its own

Its tools are the names in `call`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

OPTIONS = {name: value for name, _, value in (word.partition("=") for word in sys.argv[1:])}
LOCK = threading.Lock()
ANSWERS: dict[Any, Any] = {}
ANSWERED = threading.Condition()
CHILDREN: list[subprocess.Popen[bytes]] = []


def write(data: bytes) -> None:
    with LOCK:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def send(message: Any) -> None:
    write(json.dumps(message, ensure_ascii=False).encode() + b"\n")


def complain(text: str) -> None:
    os.write(2, text.encode() + b"\n")


def text(said: str, **more: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": said}], **more}
    if "stateless" in OPTIONS:
        result["resultType"] = "complete"
    return result


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:  # what listed them
        return False
    return True


def call(number: Any, name: str, given: dict[str, Any], meta: dict[str, Any]) -> Any:
    if name == "echo":
        return text(given["text"])
    if name == "size":
        return text(str(len(given["text"])))
    if name == "slow":
        time.sleep(given["seconds"])
        return text("slow")
    if name == "never":
        return None
    if name == "late":
        threading.Timer(given["seconds"], lambda: send(response(number, text("late")))).start()
        return None
    if name == "die":
        complain("about to die")
        complain("Traceback: out of cheese")
        os._exit(given.get("code", 3))
    if name == "kill":
        os.kill(os.getpid(), given.get("signal", signal.SIGKILL))
    if name == "flood":
        complain("x" * given["size"])
        complain("the last line")
        return text("flooded")
    if name == "big":
        return text("x" * given["size"])
    if name == "tiny-writes":
        data = json.dumps(response(number, text("y" * given["size"]))).encode() + b"\n"
        for at in range(0, len(data), 100):
            write(data[at : at + 100])
            time.sleep(0)
        return None
    if name == "progress":
        token = meta["progressToken"]
        for done in range(given["count"]):
            params = {"progressToken": token, "progress": done}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            if "pause" in given:
                time.sleep(given["pause"])
        return text("done") if given.get("ends", True) else None
    if name == "ask":
        return text(
            json.dumps(
                [
                    ask(method, given.get("ids", "s{}").format(i), number, given.get("same_id"))
                    for i, method in enumerate(given["methods"])
                ]
            )
        )
    if name == "environ":
        return text(json.dumps(dict(os.environ)))
    if name == "descriptors":
        return text(json.dumps(sorted(n for n in map(int, os.listdir("/proc/self/fd")) if is_open(n))))
    if name == "pids":
        return text(json.dumps([os.getpid(), *[child.pid for child in CHILDREN]]))
    if name == "where":
        return text(json.dumps({"cwd": os.getcwd(), "argv": sys.argv[1:], "sid": os.getsid(0), "pgid": os.getpgid(0)}))
    if name == "child":
        start_child(given.get("kind", "plain"))
        return text(json.dumps(CHILDREN[-1].pid))
    if name == "close-stdout":
        os.close(1)
        time.sleep(600)
    if name == "close-stdin":
        os.close(0)
        send(response(number, text("closed")))
        time.sleep(600)
    if name == "stop-reading":
        send(response(number, text("not reading")))
        while not os.path.exists(given["until"]):
            time.sleep(0.005)
        return None
    if name == "noise":
        write(b'Listening on port 80\n\n\r\n\xff\xfe\xfa\n[]\n[1, 2]\n42\nnull\n{"level": "info"}\n{}\n')
        write(b"\xef\xbb\xbf" + json.dumps({"jsonrpc": "2.0", "method": "notifications/unheard_of"}).encode() + b"\r\n")
        ending = given.get("ending", "crlf")
        data = json.dumps(response(number, text("a\u2028b\u2029c\u0085d")), ensure_ascii=False).encode()
        if ending == "crlf":
            write(data + b"\r\n")
        elif ending == "glued":
            write(b"progress: 100%" + data + b"\n")
        elif ending == "batch":
            write(b"[" + data + b"]\n")
        elif ending == "bom":
            write(b"\xef\xbb\xbf" + data + b"\n")
        return None
    if name == "garbled":
        data = json.dumps(response(number, text("caf\u00e9")), ensure_ascii=False).encode("latin-1")
        write(data + b"\n")
        return None
    if name == "leave":
        os._exit(0)
    return {"code": -32602, "message": "Unknown tool: " + name}


def ask(method: str, asked: str, number: Any, same_id: bool | None) -> Any:
    request_id = number if same_id else asked
    send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {}})
    with ANSWERED:
        ANSWERED.wait_for(lambda: request_id in ANSWERS, 10)
        return ANSWERS.pop(request_id, "no answer")


def start_child(kind: str) -> None:
    reading, writing = os.pipe()
    code = "import os, signal, sys, time\n"
    if kind == "stubborn":
        code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += f"os.write({writing}, b'up')\nos.close({writing})\ntime.sleep(600)"
    line = [sys.executable, "-S", "-E", "-c", code]
    CHILDREN.append(subprocess.Popen(line, pass_fds=[writing], start_new_session=kind == "escaped"))
    os.close(writing)
    os.read(reading, 2)
    os.close(reading)


def response(number: Any, answer: Any) -> dict[str, Any]:
    kind = "error" if isinstance(answer, dict) and "code" in answer else "result"
    return {"jsonrpc": "2.0", "id": number, kind: answer}


def answer(message: dict[str, Any]) -> Any:
    method, params = message["method"], message.get("params", {})
    if method == OPTIONS.get("die-at"):
        complain("usage: server [options]")
        os._exit(3)
    if method == OPTIONS.get("silent-at"):
        return None
    if method == "server/discover" and "stateless" in OPTIONS:
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
    if method == "initialize" and "stateless" not in OPTIONS:
        info = {"name": "handmade", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return call(message["id"], params["name"], params.get("arguments", {}), params.get("_meta", {}))
    return {"code": -32601, "message": "Method not found"}


def take(line: bytes) -> None:
    message = json.loads(line)
    if "method" not in message:
        with ANSWERED:
            ANSWERS[message["id"]] = message.get("result", message.get("error"))
            ANSWERED.notify_all()
    elif "id" in message:
        work = threading.Thread(target=reply, args=(message,), daemon=True)
        work.start()
        is_to_wait = "threads" not in OPTIONS and message.get("params", {}).get("name") not in ("ask", "never")
        if is_to_wait or message.get("params", {}).get("name") in ("stop-reading", "close-stdin"):
            work.join()


def reply(message: dict[str, Any]) -> None:
    found = answer(message)
    if found is not None:
        send(response(message["id"], found))


def main() -> None:
    if "ignore-term" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in OPTIONS:
        start_child(OPTIONS["child"])
    if "banner" in OPTIONS:
        write(b"Welcome!\n\n\xff\xfe\n[]\nnull\n")
    log = os.open(OPTIONS["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if "log" in OPTIONS else None
    rest = b""
    while True:
        try:
            data = os.read(0, 65536)
        except OSError:
            break
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if log is not None:
                os.write(log, line + b"\n")
            take(line)
    if "marker" in OPTIONS:
        time.sleep(0.25)
        with open(OPTIONS["marker"], "w") as marker:
            marker.write("saved")
    while "ignore-eof" in OPTIONS:
        time.sleep(600)
    os._exit(0)


if __name__ == "__main__":
    main()
