"""The views of the chat."""

from __future__ import annotations

from chat_page import agent
from django.http import FileResponse, HttpRequest, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_GET, require_POST, require_safe

from mantyx_sync.web import EventStream


@require_safe
@ensure_csrf_cookie
def page(_request: HttpRequest) -> FileResponse:
    return FileResponse((agent.PAGE / "index.html").open("rb"))


@require_GET
def conversation(request: HttpRequest) -> JsonResponse:
    return JsonResponse(agent.conversation(request.session.get("id")))


@require_POST
def messages(request: HttpRequest) -> StreamingHttpResponse:
    request.session["id"], stream = agent.ask(request.session.get("id"), request.body)
    return streamed(stream)


@require_GET
def events(request: HttpRequest) -> StreamingHttpResponse:
    return streamed(agent.look(request.session.get("id"), request.headers.get("Last-Event-ID")))


@require_POST
def stop(request: HttpRequest) -> JsonResponse:
    agent.stop(request.session.get("id"), request.body)
    return JsonResponse({})


@require_POST
def new(request: HttpRequest) -> JsonResponse:
    agent.end_session(request.session.pop("id", None))
    return JsonResponse({})


def streamed(stream: EventStream) -> StreamingHttpResponse:
    return StreamingHttpResponse(stream, headers=dict(stream.headers))
