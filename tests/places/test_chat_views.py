"""The views of the chat examples as WSGI applications, without a web server, a browser or an account."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.processes import ROOT

# In an interpreter of its own, where a warning is an error. `requested` is all there is of a browser.
PROGRAM = """\
    import http.cookies, importlib, io, json, sys
    from wsgiref.util import setup_testing_defaults
    from wsgiref.validate import validator

    folder, module, name = sys.argv[1:]
    sys.path.insert(0, folder)
    application = validator(getattr(importlib.import_module(module), name))
    from chat_page import agent, shop
    agent.WORD_PAUSE_S = shop.COURIER_S = 0.0
    cookies = http.cookies.SimpleCookie()

    def requested(method, path, body=None, **headers):
        raw = b"" if body is None else json.dumps(body).encode()
        environ = {"REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", **headers}
        environ.update(CONTENT_LENGTH=str(len(raw)), CONTENT_TYPE="application/json", HTTP_HOST="localhost")
        environ["wsgi.input"] = io.BytesIO(raw)
        setup_testing_defaults(environ)
        environ["HTTP_COOKIE"] = "; ".join(f"{name}={kept.value}" for name, kept in cookies.items())
        environ["HTTP_X_CSRFTOKEN"] = cookies["csrftoken"].value if "csrftoken" in cookies else ""
        started = []
        pieces = application(environ, lambda *answer: started.append(answer))
        try:
            text = b"".join(pieces).decode()
        finally:
            pieces.close()
        for name, value in started[0][1]:
            if name == "Set-Cookie":
                assert "; Secure" in value, value
                cookies.load(value)
        return started[0][0][:3], dict(started[0][1]), text

    status, headers, text = requested("GET", "/")
    assert (status, headers["Content-Type"][:9]) == ("200", "text/html"), (status, headers)
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert requested("GET", "/static/chat.js")[1]["Content-Type"].partition(";")[0] == "text/javascript"
    assert json.loads(requested("GET", "/conversation")[2]) == {"turns": [], "run": None}
    assert requested("GET", "/events")[0] == "400"

    question = {"text": "Look up order 17, then track parcel PX-2041.", "id": "first"}
    status, headers, text = requested("POST", "/messages", question)
    assert status == "200", (status, text)
    assert headers["Content-Type"].startswith("text/event-stream")
    assert [name for name in ("event: run", "event: task_plan", "event: thinking_delta") if name not in text] == []
    assert "expected tomorrow before noon" in text.split("event: local_tool_result_in")[2]
    assert text.rstrip().split("\\n\\n")[-1].split("\\n")[1] == "event: result", text

    found = json.loads(requested("GET", "/conversation")[2])
    assert found == {"turns": [], "run": {"message": "first", "said": question["text"]}}
    run = text.split("id: ")[1].split("/")[0]
    assert run in requested("POST", "/messages", question)[2]  # posted again, for want of an answer: said once
    again = requested("GET", "/events")[2]
    place = again.split("id: ")[3].split("\\n")[0]
    rest = requested("GET", "/events", HTTP_LAST_EVENT_ID=place)[2]
    assert again.endswith(rest.partition("event: run")[2].partition("\\n\\n")[2])
    assert requested("GET", "/events", HTTP_LAST_EVENT_ID="run_of_another/1")[0] == "400"

    requested("POST", "/messages", {"text": "What is the status of order 99?", "id": "second"})
    found = json.loads(requested("GET", "/conversation")[2])
    assert [said for said, _ in found["turns"]] == [question["text"]]
    assert found["run"]["message"] == "second"
    assert requested("POST", "/stop", {"run": run})[0] == "200"  # over already
    assert requested("POST", "/new", {})[0] == "200"
    assert json.loads(requested("GET", "/conversation")[2]) == {"turns": [], "run": None}
    for path in ("/messages", "/stop", "/new"):
        assert requested("GET", path)[0] == "405"
    print("all is well")
"""


@pytest.mark.parametrize(
    "application",
    [("flask_chat", "app", "app"), ("django_chat", "desk.wsgi", "application")],
    ids=["Flask", "Django"],
)
def test_the_views_answer_without_an_account(application: tuple[str, str, str]) -> None:
    folder, module, name = application
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MANTYX_", "CHAT_"))}
    interpreter = (sys.executable, "-X", "dev", "-W", "error", "-c")
    done = subprocess.run(
        [*interpreter, textwrap.dedent(PROGRAM), str(ROOT / "examples" / folder), module, name],
        env={**env, "PYTHONPATH": str(ROOT), "CHAT_HTTPS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(no MANTYX_API_KEY: using the embedded server at http://127.0.0.1:")
    assert done.stdout.endswith("all is well\n")
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
