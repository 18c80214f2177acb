"""One small application that streams runs, as a plain WSGI application, in Flask and in Django.

    /stream?prompt=…&leaving=cancel|finish&heartbeat=0.2     a run of its own
    /resume                                                  goes on from Last-Event-ID
    /inside                                                  what threads of the package there are, as JSON

The tool `where` says in which process it ran. Errors of `EventStream` itself are answered with their status.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.parse
from typing import Any, Callable, Iterable

from mantyx_sync import MantyxClient, MantyxConfigError, tool
from mantyx_sync.web import EventStream, resume_from

client = MantyxClient()


@tool
def where() -> str:
    """Say in which process this runs."""
    return f"process {os.getpid()}"


def stream_of(query: dict[str, str]) -> EventStream:
    """Return the stream that a request asks for."""
    return EventStream(
        lambda: client.stream_agent(system_prompt="Help.", prompt=query["prompt"], tools=[where]),
        on_disconnect="finish" if query.get("leaving") == "finish" else "cancel",
        heartbeat=float(query.get("heartbeat", "0.2")),
    )


def resumed(last_event_id: str) -> EventStream:
    """Return the stream that goes on from there."""
    place = resume_from(last_event_id)
    assert place is not None
    return EventStream.attach(client, place.run_id, place.last_seq, on_disconnect="finish", heartbeat=0.2)


def inside() -> str:
    """Tell what is going on in this process."""
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("mantyx-")]
    return json.dumps({"pid": os.getpid(), "threads": sorted(name for name in names if "-tool" not in name)})


# ------------------------------------------------------------------------------------------- plain WSGI


def plain(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    query = dict(urllib.parse.parse_qsl(environ.get("QUERY_STRING", "")))
    if environ["PATH_INFO"] == "/inside":
        start_response("200 OK", [("Content-Type", "application/json")])
        return [inside().encode()]
    try:
        came_back = environ["PATH_INFO"] == "/resume"
        stream = resumed(environ["HTTP_LAST_EVENT_ID"]) if came_back else stream_of(query)
    except MantyxConfigError as error:
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [str(error).encode()]
    start_response("200 OK", stream.headers)
    return stream


# ------------------------------------------------------------------------------------------- Flask


def make_flask() -> Any:
    import flask

    app = flask.Flask(__name__)

    @app.get("/stream")
    def _stream() -> flask.Response:
        stream = stream_of(flask.request.args.to_dict())
        return flask.Response(stream, headers=stream.headers)

    @app.get("/resume")
    def _resume() -> flask.Response:
        stream = resumed(flask.request.headers["Last-Event-ID"])
        return flask.Response(stream, headers=stream.headers)

    @app.get("/inside")
    def _inside() -> str:
        return inside()

    return app


# ------------------------------------------------------------------------------------------- Django


def configure_django() -> None:
    from django.conf import settings

    settings.configure(
        DEBUG=False,
        SECRET_KEY="for tests",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        # The one that compresses whatever it can, also streams.
        MIDDLEWARE=["django.middleware.gzip.GZipMiddleware", "django.middleware.common.CommonMiddleware"],
        WSGI_APPLICATION=f"{__name__}.django_application",
        INSTALLED_APPS=["django.contrib.staticfiles"],
        STATIC_URL="static/",
    )


def make_django() -> Any:
    from django.core.wsgi import get_wsgi_application

    configure_django()
    return get_wsgi_application()


def _django_urls() -> list[Any]:
    from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
    from django.urls import path

    def stream_view(request: HttpRequest) -> StreamingHttpResponse:
        stream = stream_of(request.GET.dict())
        return StreamingHttpResponse(stream, headers=stream.headers)

    def resume_view(request: HttpRequest) -> StreamingHttpResponse:
        stream = resumed(request.headers["Last-Event-ID"])
        return StreamingHttpResponse(stream, headers=stream.headers)

    def inside_view(_: HttpRequest) -> HttpResponse:
        return HttpResponse(inside(), content_type="application/json")

    return [path("stream", stream_view), path("resume", resume_view), path("inside", inside_view)]


def __getattr__(name: str) -> Any:
    """Make what needs a framework when it is asked for."""
    if name == "flask_application":
        return make_flask()
    if name == "django_application":
        from django.core.wsgi import get_wsgi_application

        return get_wsgi_application()
    if name == "urlpatterns":
        found = globals()["urlpatterns"] = _django_urls()
        return found
    raise AttributeError(name)


# ------------------------------------------------------------------------------------------- servers without a command


def serve_waitress() -> None:
    import waitress

    from mantyx_sync.web import end_streams_at_sigterm

    end_streams_at_sigterm()
    waitress.serve(plain, host="127.0.0.1", port=0, threads=8)


def serve_wsgiref() -> None:
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIServer, make_server
    from wsgiref.validate import validator

    from mantyx_sync.web import end_streams_at_sigterm

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True

    end_streams_at_sigterm()
    with make_server("127.0.0.1", 0, validator(plain), server_class=Server) as server:
        server.serve_forever()


def serve_flask() -> None:
    from mantyx_sync.web import end_streams_at_sigterm

    end_streams_at_sigterm()
    make_flask().run("127.0.0.1", 0)


def serve_django(*options: str) -> None:
    from django.core.management import execute_from_command_line

    from mantyx_sync.web import end_streams_at_sigterm

    configure_django()
    end_streams_at_sigterm()
    execute_from_command_line(["manage", "runserver", "127.0.0.1:0", *options])


if __name__ == "__main__":
    # Under its real name, by which Django finds its addresses.
    from tests.places import served_app

    getattr(served_app, f"serve_{sys.argv[1]}")(*sys.argv[2:])
