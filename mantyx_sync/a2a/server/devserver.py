"""A threaded server for WSGI applications out of the standard library: `A2AApp.run` and `A2AApp.serve`."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import sys
import threading
import time
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Set
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from .bodies import pass_by, plain_answer

if TYPE_CHECKING:
    from .wsgi import A2AApp

__all__ = ["DevServer"]

log = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 60.0
"""How long a connection may keep a thread without sending its request."""
STOP_TIMEOUT_S = 5.0


class _Handler(WSGIRequestHandler):
    timeout = IDLE_TIMEOUT_S
    wbufsize = -1  # else the head of an answer goes out in four pieces; each piece of a body is flushed all the same

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        log.debug("%s " + format, self.address_string(), *args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False  # we join them ourselves, with a deadline
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.lock = threading.Lock()
        self.open: Set[socket.socket] = set()
        self.threads: Set[threading.Thread] = set()
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not the base class's way, which asks the name service who we are: that can take seconds.
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        # Owner: `DevServer`, which wakes it by shutting its socket and joins it.
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="mantyx-a2a-request",
            daemon=True,
        )
        with self.lock:
            self.open.add(request)
            self.threads.add(thread)
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.threads.discard(threading.current_thread())

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's arguments
        error = sys.exc_info()[1]
        if isinstance(error, OSError):  # the caller has gone
            log.debug("a caller has gone: %s", error)
        else:
            log.error("a request failed", exc_info=True)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return "?"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class DevServer:
    """Serves an app while it is open. Made by `A2AApp.serve`; use it in a `with` block."""

    def __init__(self, app: A2AApp, host: str, port: int) -> None:
        self._app = app
        try:
            self._server = _Server(host, port)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: {host} port {port} (port 0 takes a free one)") from error
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.server_port}"
        """Where the server is."""
        self._server.set_app(self._serve if _is_loopback(host) else app)
        self._is_closed = threading.Event()
        try:
            self._is_its_place = app.mount_if_nowhere(self.url)
            # Owner: this object; `close` wakes it by asking it to stop and joins it.
            self._thread = threading.Thread(
                target=self._server.serve_forever,
                kwargs={"poll_interval": 0.1},
                name="mantyx-a2a-server",
                daemon=True,
            )
            self._thread.start()
        except BaseException:
            self._server.server_close()
            raise

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed.is_set() else ""
        return f"<DevServer of A2A agent {self._app.name!r} at {self.url}{state}>"

    def __enter__(self) -> DevServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, environ: Dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request that was meant for this machine.

        A web page can have its own name lead here (DNS rebinding), and then send what it likes; its name is in `Host`.
        """
        host = _host_of(f"http://{environ.get('HTTP_HOST', '')}")
        if host and not _is_loopback(host) and host != _host_of(self._app.url):
            pass_by(environ)
            return plain_answer(start_response, "421 Misdirected Request")
        return self._app(environ, start_response)

    def announce(self) -> None:
        """Say on stderr where the server is."""
        sys.stderr.write(f"A2A agent {self._app.name!r} is served at {self.url} (Ctrl-C ends it)\n")
        sys.stderr.flush()

    def wait(self) -> None:
        """Block until Ctrl-C, or until the server is closed."""
        with contextlib.suppress(KeyboardInterrupt):
            while not self._is_closed.wait(0.5):
                pass

    def close(self) -> None:
        """Stop serving, close the app, and end every connection. Blocks, a few seconds at most."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        self._server.shutdown()
        self._thread.join(STOP_TIMEOUT_S)
        self._server.server_close()
        self._app.close()  # ends the streams, and what waits for tasks
        with self._server.lock:
            threads = list(self._server.threads)
        # First only for reading, which ends those that wait for a request; answers that are being written may end.
        for how, patience_s in ((socket.SHUT_RD, 1.0), (socket.SHUT_RDWR, STOP_TIMEOUT_S)):
            with self._server.lock:
                left = list(self._server.open)
            for connection in left:
                with contextlib.suppress(OSError):
                    connection.shutdown(how)
            until = time.monotonic() + patience_s
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
        if self._is_its_place:
            self._app.unmount()
