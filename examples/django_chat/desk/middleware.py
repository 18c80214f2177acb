"""What holds for every view: headers that protect the page, and errors that it can read."""

from __future__ import annotations

import logging
from typing import Callable

from chat_page import agent
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse

from mantyx_sync import MantyxError
from mantyx_sync.web import public_error

log = logging.getLogger(__name__)


class ChatMiddleware:
    """Add the headers, and turn what the agent raises into JSON with a status."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        for name, value in agent.HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, RequestDataTooBig):
            return HttpResponse(status=413)
        if not isinstance(error, MantyxError):
            return None
        log.warning("%s: %s", request.path, error)
        status, body = public_error(error)
        return JsonResponse(body, status=status)
