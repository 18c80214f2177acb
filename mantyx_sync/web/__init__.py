"""What a view of Flask or Django needs to show a run in a browser while it goes on; also for any other WSGI server.

def answer(request):                                          # Django
    stream = EventStream(lambda: client.stream_agent(prompt=request.POST["text"], agent_id="…"))
    return StreamingHttpResponse(stream, headers=stream.headers)

Knows neither framework, and imports none.

Where what lies: `stream` is the response's body; `shown` decides what of an event the browser gets, `errors` what it is
told of a failure, `places` where it goes on when it comes back. `finishing` keeps runs whose browser has left, `ending`
ends the streams with their process, `history` is for pages that are loaded anew.
"""

from __future__ import annotations

from .ending import end_streams, end_streams_at_sigterm
from .errors import public_error
from .history import history_events, running_run
from .places import Place, resume_from
from .shown import Show, public_data
from .stream import EventStream

__all__ = [
    "EventStream",
    "Place",
    "Show",
    "end_streams",
    "end_streams_at_sigterm",
    "history_events",
    "public_data",
    "public_error",
    "resume_from",
    "running_run",
]
