"""Stream an agent's answer to a browser, from a WSGI application.

A view of Flask or Django does the same: give `pieces(question)` to `flask.Response(...)` or to
`django.http.StreamingHttpResponse(...)`. When the browser goes away the server closes the generator, which leaves
the `with` block, which cancels the run.

    python examples/wsgi_streaming.py
"""

import threading
import urllib.parse
import urllib.request
from typing import Any, Callable, Iterable, Iterator
from wsgiref.simple_server import WSGIRequestHandler, make_server

from account import connect

from mantyx_sync import MantyxClient, MantyxError


def pieces(client: MantyxClient, question: str) -> Iterator[bytes]:
    """Yield the answer as it is written."""
    try:
        with client.stream_agent(system_prompt="You answer shortly.", prompt=question, timeout=60) as run:
            for text in run.text_stream:
                yield text.encode()
    except MantyxError as error:  # the status line is out already, so the reader is told in the text
        yield f"\n[the answer broke off: {error.code}]".encode()


def make_application(client: MantyxClient) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Return the WSGI application. One client serves all its requests."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        query = urllib.parse.parse_qs(environ.get("QUERY_STRING", ""))
        start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
        return pieces(client, query.get("q", ["What can you do?"])[0])

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
    """Play the browser."""
    url = f"http://127.0.0.1:{port}/?" + urllib.parse.urlencode({"q": question})
    with urllib.request.urlopen(url, timeout=60) as response:
        while True:
            arrived = response.read1(1000)
            if not arrived:
                break
            print(arrived.decode(), end="", flush=True)
    print()


if __name__ == "__main__":
    main()
