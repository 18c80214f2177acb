"""A chat page with Flask: answers stream in, with their tools and plan; they can be stopped, and outlive a reload.

    pip install flask
    python examples/flask_chat/app.py

In production, with one process; with MANTYX_API_KEY and CHAT_SECRET set, with any number of them:

    gunicorn --chdir examples/flask_chat --worker-class gthread --threads 32 app:app
    cd examples/flask_chat && waitress-serve --threads 32 app:app

Each open answer takes a thread of the server for as long as it is written, so a worker needs several.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from flask import Flask, Response, request, session

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # chat_page is there

from chat_page import agent

from mantyx_sync import MantyxError
from mantyx_sync.web import EventStream, end_streams_at_sigterm, public_error

app = Flask(__name__, static_folder=str(agent.PAGE), static_url_path="/static")
app.config.update(
    SECRET_KEY=agent.SECRET,
    SESSION_COOKIE_NAME="chat",
    SESSION_COOKIE_SAMESITE="Lax",
    SESSION_COOKIE_SECURE=agent.HTTPS,
    MAX_CONTENT_LENGTH=agent.MAX_BODY_BYTES,
)


@app.get("/")
def page() -> Response:
    return app.send_static_file("index.html")


@app.get("/conversation")
def conversation() -> dict[str, Any]:
    return agent.conversation(session.get("id"))


@app.post("/messages")
def messages() -> Response:
    session["id"], stream = agent.ask(session.get("id"), request.get_data())
    return streamed(stream)


@app.get("/events")
def events() -> Response:
    return streamed(agent.look(session.get("id"), request.headers.get("Last-Event-ID")))


@app.post("/stop")
def stop() -> dict[str, Any]:
    agent.stop(session.get("id"), request.get_data())
    return {}


@app.post("/new")
def new() -> dict[str, Any]:
    agent.end_session(session.pop("id", None))
    return {}


def streamed(stream: EventStream) -> Response:
    return Response(stream, headers=stream.headers)  # type: ignore[arg-type]  # Werkzeug's stubs want a list of bytes


@app.before_request
def refuse_forms() -> tuple[str, int] | None:
    """Take posts of JSON only: a page of somebody else can send forms with our cookie, but not JSON."""
    return ("", 415) if request.method == "POST" and not request.is_json else None


@app.errorhandler(MantyxError)
def failed(error: MantyxError) -> tuple[dict[str, Any], int]:
    app.logger.warning("%s: %s", request.path, error)
    status, body = public_error(error)
    return body, status


@app.after_request
def protect(response: Response) -> Response:
    for name, value in agent.HEADERS.items():
        response.headers.setdefault(name, value)
    return response


if __name__ == "__main__":
    end_streams_at_sigterm()
    app.run(port=int(os.environ.get("PORT", "5000")))
