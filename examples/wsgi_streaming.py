"""Stream an agent's answer to a browser, from a WSGI application.

A view of Flask or Django does the same: it gives the stream to `flask.Response(stream, headers=stream.headers)` or to
`django.http.StreamingHttpResponse(stream, headers=stream.headers)`. The answer is an event stream, as `EventSource`
reads it in a page. When the browser goes away the server closes the stream, which cancels the run.

    python examples/wsgi_streaming.py
"""

import json
import threading
import urllib.parse
import urllib.request
from typing import Any, Callable, Iterable
from wsgiref.simple_server import WSGIRequestHandler, make_server

from account import connect

from mantyx_sync import MantyxClient
from mantyx_sync.web import EventStream


def make_application(client: MantyxClient) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Return the WSGI application. One client serves all its requests."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        query = urllib.parse.parse_qs(environ.get("QUERY_STRING", ""))
        question = query.get("q", ["What can you do?"])[0]
        stream = EventStream(
            lambda: client.stream_agent(system_prompt="You answer shortly.", prompt=question, timeout=60)
        )
        start_response("200 OK", stream.headers)
        return stream

    return application


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        pass


def main() -> None:
    with connect() as client, make_server("127.0.0.1", 0, make_application(client), handler_class=QuietHandler) as web:
        browser = threading.Thread(target=ask, args=(web.server_port, "Say hello to the people in the hall."))
        browser.start()
        web.handle_request()  # one is enough to show it
        browser.join()


def ask(port: int, question: str) -> None:
    """Play the browser, and the script in its page that shows the words as they come."""
    url = f"http://127.0.0.1:{port}/?" + urllib.parse.urlencode({"q": question})
    kind = ""
    with urllib.request.urlopen(url, timeout=60) as response:
        for line in response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data" and kind == "assistant_delta":
                print(json.loads(value)["text"], end="", flush=True)
            elif name == "data" and kind == "error":
                print(f"\n[{json.loads(value)['error']}]", end="")
    print()


if __name__ == "__main__":
    main()
