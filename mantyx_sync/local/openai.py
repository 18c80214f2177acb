"""`OpenAICompatibleModel`: think with any server that speaks chat completions, such as one on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import threading
from typing import Any, Generator, Iterator, Mapping
from urllib.parse import urlsplit

from mantyx_sync.local.chat import ChatStream, chat_body, chat_failure
from mantyx_sync.local.model import ModelFailure, ModelPart, ModelRequest
from mantyx_sync.reprs import brief

__all__ = ["OpenAICompatibleModel"]

_log = logging.getLogger(__name__)

MAX_ERROR_BODY_BYTES = 64 * 1024
# How often a call looks whether its run was ended meanwhile: two events cannot be waited for at once.
_WATCH_POLL_S = 0.05


class OpenAICompatibleModel:
    """Drive the agent loop with a chat-completions server: llama.cpp, Ollama, vLLM, LM Studio, a hosted one.

        LocalServer(OpenAICompatibleModel("http://127.0.0.1:11434/v1", "qwen3"))

    Every turn is one streaming `POST {base_url}/chat/completions`, on a connection of its own. Text, reasoning
    (`reasoning_content`) and tool calls come as they are written; an output schema goes out as a strict
    `response_format`, and a server that rejects it is asked again without, unless the schema is to be enforced
    strictly. Cancelling a run, or a supervisor that breaks a turn off, closes the connection. Redirects are not
    followed, and nothing is retried here: `fallbackModelId` is the run's second chance. Several threads may use
    one model.

    Args:
        base_url: The API's root, such as `http://127.0.0.1:8080/v1`.
        model: The server's name of the model.
        api_key: Sent as a bearer token, to `base_url` alone; None sends none.
        timeout: Seconds without a byte after which a turn fails.
        model_id: The catalog id that runs report; None is `local:` and the model's name.
        send_reasoning: Send the run's reasoning level as `reasoning_effort`. Off by default: servers that do not
            know the field may refuse it.
        structured_output: `native_schema`, or `none` for a server known to ignore `response_format`.
        extra_body: Further fields of every request, such as `temperature`.

    Raises:
        ValueError: `base_url` is no http or https URL.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        model_id: str | None = None,
        send_reasoning: bool = False,
        structured_output: str = "native_schema",
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"base_url must be an http or https URL, got {base_url!r}")
        self.base_url = base_url
        self.model = model
        self.model_id = model_id or f"local:{model}"
        self.structured_output = structured_output
        self._secure = url.scheme == "https"
        self._host = url.hostname
        self._port = url.port
        self._path = url.path.rstrip("/") + "/chat/completions" + (f"?{url.query}" if url.query else "")
        self._api_key = api_key
        self._timeout = timeout
        self._send_reasoning = send_reasoning
        self._extra_body = dict(extra_body or {})

    def __repr__(self) -> str:
        return f"OpenAICompatibleModel({brief(self.base_url)}, {brief(self.model)})"

    def complete(self, request: ModelRequest) -> Iterator[ModelPart]:
        """Play one turn. Blocks while the server is silent. Raises `ModelFailure`."""
        body = chat_body(request, self.model, send_reasoning=self._send_reasoning, extra=self._extra_body)
        if self.structured_output == "none":
            body.pop("response_format", None)
        connection = self._connect()
        try:
            with _closed_when_ended(connection, request):
                yield from self._exchange(connection, body)
        except ModelFailure:
            if not _is_ended(request):
                raise
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        try:
            connection.connect()
        except OSError as error:
            raise ModelFailure(
                f"The model server at {self._host} cannot be reached: {error}",
                error_class="server",
                retryable=True,
            ) from error
        return connection

    def _exchange(self, connection: http.client.HTTPConnection, body: Mapping[str, Any]) -> Iterator[ModelPart]:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        stream = ChatStream()
        try:
            connection.request("POST", self._path, json.dumps(body).encode(), headers)
            response = connection.getresponse()
            with contextlib.closing(response):
                if response.status != 200:
                    text = response.read(MAX_ERROR_BODY_BYTES).decode("utf-8", "replace")
                    raise chat_failure(response.status, _json_or_text(text), with_schema="response_format" in body)
                if response.getheader("Content-Type", "").startswith("application/json"):
                    yield from stream.feed(_json_or_text(response.read().decode("utf-8", "replace")))
                    done = stream.is_complete
                else:
                    done = yield from _read_events(response, stream)
        except (socket.timeout, TimeoutError) as error:
            raise ModelFailure(
                f"The model server was silent for {self._timeout:g} s.", error_class="timeout", retryable=True
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise _broken(f"The connection to the model server broke: {error!r}") from error
        if not done:
            raise _broken("The answer of the model server ended before it was complete.")
        yield from stream.finish()


def _read_events(response: http.client.HTTPResponse, stream: ChatStream) -> Generator[ModelPart, None, bool]:
    """Yield the parts of an event stream; returns whether it came to its proper end."""
    while True:
        line = response.readline()
        if not line:
            return stream.is_complete
        if not line.startswith(b"data:"):
            continue
        payload = line[5:].strip()
        if payload == b"[DONE]":
            return True
        try:
            chunk = json.loads(payload)
        except ValueError as error:
            raise _broken("The model server sent an event that is no JSON.") from error
        yield from stream.feed(chunk)


def _broken(message: str) -> ModelFailure:
    return ModelFailure(message, error_class="server", retryable=True)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_ended(request: ModelRequest) -> bool:
    return request.cancelled.is_set() or request.abandoned.is_set()


@contextlib.contextmanager
def _closed_when_ended(connection: http.client.HTTPConnection, request: ModelRequest) -> Iterator[None]:
    """Wake a call that reads from a silent server when its run is cancelled or the server stops."""
    done = threading.Event()
    sock = connection.sock

    def watch() -> None:
        while not done.wait(_WATCH_POLL_S):
            if _is_ended(request):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                return

    # Owner: this call. `done` wakes it, and the call joins it before it returns; it blocks on nothing else.
    thread = threading.Thread(target=watch, name=f"mantyx-local-model-{request.run_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
