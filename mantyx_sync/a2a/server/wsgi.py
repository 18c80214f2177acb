"""`A2AApp`: a MANTYX agent as an A2A peer, as a plain WSGI application (a2a §5)."""

from __future__ import annotations

import contextvars
import json
import logging
import os
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Mapping, NoReturn, Sequence, Union

from ...checks import callbacks, integer, json_copy, kind_of, refusal, seconds, sequence, shown, text, whole_number
from ...errors import MantyxConfigError
from ...events import ToolFile
from ...failures import describe_failure as default_description
from ...output import OutputType
from ...spec import OMITTED, build_spec, check_names, spec_signature
from ...transport.sse_writing import sse_event, stream_headers
from ...transport.url import BaseURL
from ..dialects import V03, Operation
from ..rpc import INTERNAL_ERROR, INVALID_REQUEST, PUSH_NOTIFICATION_NOT_SUPPORTED, UNSUPPORTED_OPERATION
from .bodies import (
    EventBody,
    TooLarge,
    json_answer,
    pass_by,
    plain_answer,
    read_body,
    version_of,
)
from .calls import Call, Refused, read_call, write_failure, write_success
from .card import card_bytes, card_etag, read_skills, write_card
from .conversations import CONTEXT_KEY, Conversations, spec_fields
from .inputs import DEFAULT_INPUT_MODES, JSON
from .runner import AgentRunner, RunnerSettings
from .service import AgentService
from .task_store import TaskStore

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack

    from ...client import MantyxClient
    from ...spec import RunSpecArgs
    from .devserver import DevServer

    Contexts = Literal["sessions", "stateless"]

__all__ = ["A2AApp"]

log = logging.getLogger(__name__)

Environ = Dict[str, Any]
StartResponse = Callable[..., Any]

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
CLOSE_TIMEOUT_S = 5.0

_TURN = ("prompt", "messages", "attachments")
_STREAMED = frozenset({Operation.STREAM, Operation.RESUBSCRIBE})
_PUSH = frozenset({Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE})


class A2AApp:
    """Expose a MANTYX agent to other agents: a WSGI application that speaks A2A 1.0 and 0.3 (JSON-RPC over HTTP).

        app = A2AApp(client, public_url="https://agents.example.com/orders", name="Orders",
                     description="Knows every order.", system_prompt="…", tools=[get_order])

    Serve it with any WSGI server that has threads (`gunicorn --threads 16`, waitress, uWSGI with `enable-threads`),
    below any path. `flask_app.wsgi_app = DispatcherMiddleware(flask_app.wsgi_app, {"/orders": app})` of Werkzeug puts
    it beside Flask; in the `wsgi.py` of a Django project it is

        def application(environ, start_response):
            path = environ["PATH_INFO"]
            if path == "/orders" or path.startswith("/orders/"):
                return app({**environ, "PATH_INFO": path[len("/orders"):]}, start_response)
            return django_application(environ, start_response)

    and `public_url` ends in `/orders` then. `run()` serves it by itself, for development. Making one opens no
    connection and starts no thread, and an app that was made before a `fork` works in the children.

    **Addresses.** The card is at `/.well-known/agent-card.json` (and at `/.well-known/agent.json`) below the place
    where the app is mounted; requests go to that place itself. The addresses in the card come from `public_url`
    alone, never from a request's headers.

    **Tasks** are kept in this process's memory, so run one process with threads; a second one would not know the
    first one's tasks. Each message begins a task, and each task is a run of the agent. `max_running` of them go on
    at once; more wait as `submitted`, in the order in which they came. A task ends as `completed` with the artifact
    `answer` (files are artifacts of their own), `failed` with a short reason, or `canceled`. A message sent again,
    with the same `messageId` and the same parts, gets the task that it began.

    **Contexts.** With `contexts="sessions"` a `contextId` stands for a MANTYX session of the caller's: messages with
    it go on with the conversation, one at a time, also after a restart. With `"stateless"` each message is a run of
    its own that knows of no other.

    **Streaming.** What the agent says goes out as it is written: pieces of the artifact `answer`. Text before a tool
    call becomes a status message, and the answer begins anew. A caller that goes away ends its stream alone; the
    task goes on and can be followed again. One thread of the WSGI server is taken by each stream and by each
    request that waits for its task. Where such a request may not take long (gunicorn's `sync` workers, proxies with a
    limit), `block_timeout` has it return early, and the caller asks for the task.

    **Callers** are told apart by `authorize`; tasks and contexts are visible to the caller that made them alone.
    Without `authorize` everybody is the same caller: do that only where every caller may see every task.
    Context variables that are set in `authorize` are seen by the agent's tools, and `current_task()` tells them who
    asks, takes files for the caller, and asks the caller back: the task is `input-required` then. `ask_caller` among
    the agent's `tools` lets the model do so.
    """

    @spec_signature(purpose="session")
    def __init__(
        self,
        client: MantyxClient,
        *,
        description: str,
        public_url: str | None = None,
        version: str = "1.0",
        skills: Sequence[Mapping[str, Any]] | None = None,
        streaming: bool = True,
        contexts: Contexts = "sessions",
        authorize: Callable[[Environ], str | None] | None = None,
        output_type: Any = None,
        run_timeout: float | None = 1800.0,
        block_timeout: float | None = None,
        cancel_timeout: float = 10.0,
        heartbeat: float = 15.0,
        max_running: int = 32,
        max_tasks: int = 1000,
        task_ttl: float = 3600.0,
        max_stored_bytes: int = 256 * 1024 * 1024,
        max_body_bytes: int = 10 * 1024 * 1024,
        input_modes: Sequence[str] = DEFAULT_INPUT_MODES,
        security_schemes: Mapping[str, Any] | None = None,
        security: Sequence[Mapping[str, Sequence[str]]] | None = None,
        card: Mapping[str, Any] | None = None,
        fetch_file: Callable[[ToolFile], Union[str, bytes, None]] | None = None,
        describe_failure: Callable[[BaseException], str] = default_description,
        **fields: Unpack[RunSpecArgs],
    ) -> None:
        """Check everything; does no I/O.

        Args:
            client: The workspace that the agent runs in. It is not closed by `close`.
            description: What the agent does, for the card.
            public_url: Where callers reach the place at which the app is mounted: `https://host/path`. `None` goes
                with `run` and `serve`, which know it.
            version: The agent's own version, for the card.
            skills: Mappings with `id`, `name`, `description` and `tags` for the card, maybe `examples`, `inputModes`
                and `outputModes`. `None` makes one of `name` and `description`.
            streaming: Serve streams. Official clients use them by default where the card says so.
            contexts: `sessions` or `stateless`, see above.
            authorize: From the WSGI environ of a request to who calls: any string that stands for one caller. `None`
                is answered with 401, a `PermissionError` with 403. The card is for everybody.
            output_type: As `MantyxClient.run_agent`. With it, or with `output_schema`, an answer that is a JSON object
                goes out as data, and as a whole.
            run_timeout: Seconds for the run of one task; then it is cancelled and the task fails. `None` waits.
            block_timeout: Seconds a plain send waits for its task to end before it returns the task as it is; the
                caller is to ask for it then. `None` waits as long as the task takes.
            cancel_timeout: Seconds a cancel waits for the run to stop.
            heartbeat: Seconds of silence on a stream after which it gets a comment, which shows who has gone.
            max_running: Tasks that go on at once; each takes a thread.
            max_tasks: Tasks that are kept. Those that ended first make room; when none has ended, a message is refused.
            task_ttl: Seconds a task is kept after its end.
            max_stored_bytes: What kept tasks may take in memory, about.
            max_body_bytes: The largest request that is read; larger ones get 413.
            input_modes: The media types that messages may have, out of what the platform takes.
            security_schemes: What `authorize` looks for, for the card: mappings with `type`, as in OpenAPI.
            security: Which of the schemes, with which scopes: `[{"bearer": []}]`.
            card: More members of the card: `provider`, `iconUrl`, `documentationUrl` and so on.
            fetch_file: From a file that a tool of the platform made to its address or its bytes, or `None` to keep
                it from the caller. Called on the task's thread. Without it, files with an absolute address of their
                own are passed on by that.
            describe_failure: From the error of a run to what the caller is told. The default names the kind alone.
            fields: Fields of `RunSpec` that hold for every run: `agent_id` or `system_prompt`, `tools` and so on.
                `name`, which must be there, is the agent's name on the card as well.

        Raises:
            MantyxConfigError: A value is not allowed.
            TypeError: A name is not a field of `RunSpec`.
        """
        check_names(fields)
        if not callable(getattr(client, "stream_agent", None)):
            raise refusal("client", kind_of(client), "be a MantyxClient")  # it may be a key
        for field_name in _TURN:
            if fields.get(field_name) is not None:
                raise MantyxConfigError(f"{field_name}: given, but it is the callers who say something here")
        name = text(fields.get("name"), "name")
        callbacks(authorize=authorize, fetch_file=fetch_file, describe_failure=describe_failure)
        if contexts not in ("sessions", "stateless"):
            raise refusal("contexts", shown(contexts), "be 'sessions' or 'stateless'")
        for key, number in (("block_timeout", block_timeout), ("run_timeout", run_timeout)):
            if number is not None:
                seconds(number, key)
        for key, number in (("cancel_timeout", cancel_timeout), ("heartbeat", heartbeat), ("task_ttl", task_ttl)):
            seconds(number, key)
        for key, count in (("max_tasks", max_tasks), ("max_stored_bytes", max_stored_bytes)):
            whole_number(count, key, 1)
        integer(max_running, "max_running", 1, 10_000)
        whole_number(max_body_bytes, "max_body_bytes", 1024)
        spec = build_spec(fields, purpose="session")
        if output_type is not None:
            output_type = OutputType(output_type)
            if spec.output_schema is not OMITTED:
                raise MantyxConfigError("output_schema: given together with output_type, must be one of the two")
        if contexts == "sessions":  # room for the tag that a session is found again by
            metadata: Any = {**(spec_fields(spec).get("metadata") or {}), CONTEXT_KEY: "0" * 64}
            replace(spec, metadata=metadata)
        modes = tuple(text(mode, "input_modes") for mode in sequence(input_modes, "input_modes", "media types"))
        if not modes:
            raise refusal("input_modes", "an empty list", "have at least one media type")
        is_structured = output_type is not None or spec.output_schema is not OMITTED
        self.name = name
        self._client = client
        self._spec = spec
        self._contexts = contexts
        self._authorize = authorize
        self._streaming = bool(streaming)
        self._heartbeat = heartbeat
        self._max_body_bytes = max_body_bytes
        self._input_modes = modes
        self._block_timeout = block_timeout
        self._settings = RunnerSettings(
            run_timeout=run_timeout,
            max_running=max_running,
            cancel_timeout=cancel_timeout,
            output_type=output_type,
            is_structured=is_structured,
            fetch_file=fetch_file,
            describe_failure=describe_failure,
        )
        self._store_limits: Dict[str, Any] = {
            "max_tasks": max_tasks,
            "task_ttl": task_ttl,
            "max_stored_bytes": max_stored_bytes,
        }
        self._card: Dict[str, Any] = {
            "name": name,
            "description": text(description, "description"),
            "version": text(version, "version"),
            "streaming": self._streaming,
            "skills": read_skills(skills, name, description),
            "input_modes": modes,
            "output_modes": ("application/json", "text/plain") if is_structured else ("text/plain",),
            "security_schemes": _mapping(security_schemes, "security_schemes"),
            "security": None
            if security is None
            else json_copy(list(sequence(security, "security", "mappings")), "security"),
            "more": _mapping(card, "card"),
        }
        self._public_url: str | None = None
        self._card_body = b""
        if public_url is not None:
            self.mount(public_url)
        # By process, so that a child of a fork begins with nothing: no thread of its parent lives on in it.
        self._services: Dict[int, AgentService] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        closed = ", closed" if self._is_closed else ""
        return f"<A2AApp {self.name!r} at {self._public_url or 'no public_url'}{closed}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an A2AApp cannot be pickled or copied: it belongs to a client. Make one where it is served")

    @property
    def url(self) -> str:
        """Where requests go, as the card says.

        Raises:
            MantyxConfigError: `public_url` was not given.
        """
        if self._public_url is None:
            raise MantyxConfigError(
                "public_url: not given, must be given unless the app is served by its run() or serve()"
            )
        return self._public_url

    @property
    def agent_card(self) -> Dict[str, Any]:
        """The card, as callers see it."""
        return write_card(url=self.url, **self._card)

    def mount(self, public_url: str) -> None:
        """Say where callers reach the app.

        Raises:
            MantyxConfigError: It is not an absolute http(s) URL, or carries credentials, a query or a fragment.
        """
        # With the slash: a proxy may pass on what is below a place and not the place itself.
        self._public_url = BaseURL(public_url, field="public_url", example="https://agents.example/orders").text + "/"
        self._card_body = card_bytes(self.agent_card)

    def mount_if_nowhere(self, public_url: str) -> bool:
        """Say where callers reach the app, unless that was said; tell whether it was not."""
        if self._public_url is not None:
            return False
        self.mount(public_url)
        return True

    def unmount(self) -> None:
        """Forget where callers reach the app: they do not any more."""
        self._public_url = None

    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """End all tasks: their runs are cancelled, their streams end. The app takes no more requests.

        Blocks, `timeout` seconds at most; may be called more than once and from any thread. At the end of the
        interpreter it happens by itself. A server that first waits for open streams, and then kills its process
        (gunicorn, waitress), leaves no time for that: have it called when the process is told to stop, from a thread
        that a handler of SIGTERM starts (gunicorn: set in `post_worker_init`).
        """
        self._is_closed = True
        service = self._services.get(os.getpid())
        if service is not None:
            service.close(timeout)

    def __enter__(self) -> A2AApp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def serve(self, host: str = "127.0.0.1", port: int = 0) -> DevServer:
        """Serve the app from a thread, for development and tests: use the result in a `with` block.

        Leaving the block stops the server and closes the app. Port 0 takes a free one; `server.url` is the place,
        and the `public_url` too where none was given. On a loopback address it answers requests alone whose `Host` is
        this machine or that of `public_url`: web pages cannot reach it by a name of theirs.

        Raises:
            OSError: The address cannot be had.
        """
        from .devserver import DevServer

        return DevServer(self, host, port)

    def run(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve the app until Ctrl-C, for development: a thread for each request, no TLS, no limits.

        Says on stderr where it is. For production use a WSGI server.

        Raises:
            OSError: The address cannot be had.
        """
        with self.serve(host, port) as server:
            server.announce()
            server.wait()

    # WSGI

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        self.url  # noqa: B018 - refuses to go on without one
        # In a context of its own: what `authorize` sets there is not for the next caller that this thread serves.
        body = contextvars.copy_context().run(self._answer, environ, start_response)
        return [b""] if environ["REQUEST_METHOD"] == "HEAD" else body

    def _answer(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")
        if path in CARD_PATHS:
            if method not in ("GET", "HEAD"):
                return plain_answer(start_response, "405 Method Not Allowed", [("Allow", "GET, HEAD")])
            return self._answer_card(environ, start_response)
        if path not in ("", "/"):
            return plain_answer(start_response, "404 Not Found")
        if method != "POST":
            return plain_answer(start_response, "405 Method Not Allowed", [("Allow", "POST")])
        return self._answer_call(environ, start_response)

    def _answer_card(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        etag = card_etag(self._card_body)
        headers = [("ETag", etag), ("Cache-Control", "max-age=60")]
        wanted = [tag.strip() for tag in environ.get("HTTP_IF_NONE_MATCH", "").split(",")]
        if "*" in wanted or etag in wanted or f"W/{etag}" in wanted:
            start_response("304 Not Modified", headers)
            return []
        start_response("200 OK", [*headers, ("Content-Type", JSON), ("Content-Length", str(len(self._card_body)))])
        return [self._card_body]

    def _answer_call(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        owner = ""
        if self._authorize is not None:
            try:
                found = self._authorize(environ)
            except PermissionError:
                pass_by(environ)
                return plain_answer(start_response, "403 Forbidden")
            if found is None:
                pass_by(environ)
                return plain_answer(start_response, "401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            if not isinstance(found, str):
                raise TypeError(f"authorize must return a string or None, not {type(found).__name__}")
            owner = found
        media_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
        if media_type != JSON and not media_type.endswith("+json"):
            # Not merely tidy: a web page can send text/plain anywhere without asking, and JSON it cannot.
            pass_by(environ)
            return plain_answer(start_response, "415 Unsupported Media Type", [("Accept-Post", JSON)])
        try:
            body = read_body(environ, self._max_body_bytes)
        except TooLarge:
            too_large = Refused(INVALID_REQUEST, f"The request is larger than {self._max_body_bytes} bytes.")
            return json_answer(start_response, write_failure(too_large), "413 Content Too Large")
        try:
            call = read_call(body, environ.get("HTTP_A2A_VERSION", "") or version_of(environ.get("QUERY_STRING", "")))
        except Refused as refused:
            return json_answer(start_response, write_failure(refused))
        try:
            return self._carry_out(call, owner, len(body), start_response)
        except Refused as refused:
            failure = write_failure(refused.about(call.dialect, call.request_id))
        except Exception:
            log.exception("A2A %s: our own fault", call.operation.value)
            fault = Refused(INTERNAL_ERROR, "The agent failed to answer.").about(call.dialect, call.request_id)
            failure = write_failure(fault)
        if call.dialect is V03 and call.operation in _STREAMED:
            # Clients of 0.3 read the answer to these as a stream whatever it is, and would lose the error.
            start_response("200 OK", stream_headers())
            return [sse_event(failure)]
        return json_answer(start_response, failure)

    def _carry_out(self, call: Call, owner: str, size: int, start_response: StartResponse) -> Iterable[bytes]:
        operation, params, dialect = call.operation, call.params, call.dialect
        if operation in _PUSH:
            raise Refused(PUSH_NOTIFICATION_NOT_SUPPORTED, "Push notifications are not supported.")
        if operation is Operation.EXTENDED_CARD:
            raise Refused(UNSUPPORTED_OPERATION, "There is no other card than the public one.")
        if operation in _STREAMED and not self._streaming:
            raise Refused(UNSUPPORTED_OPERATION, "Streaming is not supported.")
        service = self._service()
        if operation is Operation.SEND:
            return json_answer(
                start_response, write_success(call, dialect.write_event(service.send(params, owner, size)))
            )
        if operation is Operation.GET:
            return json_answer(start_response, write_success(call, dialect.write_task(service.get(params, owner))))
        if operation is Operation.CANCEL:
            return json_answer(start_response, write_success(call, dialect.write_task(service.cancel(params, owner))))
        if operation is Operation.LIST:
            return json_answer(start_response, write_success(call, service.list(params, owner, dialect)))
        if operation is Operation.STREAM:
            following = service.stream(params, owner, size)
        else:
            following = service.resubscribe(params, owner)
        start_response("200 OK", stream_headers())
        return EventBody(call, following, self._heartbeat)

    def _service(self) -> AgentService:
        """Return the tasks of this process."""
        if self._is_closed:
            raise Refused(INTERNAL_ERROR, "The agent is being shut down.")
        service = self._services.get(os.getpid())
        if service is None:
            conversations = None
            if self._contexts == "sessions":
                conversations = Conversations(self._client, self._spec, json.dumps([self.name, self.url]))
            runner = AgentRunner(self._client, self._spec, self._settings, conversations)
            service = AgentService(
                TaskStore(**self._store_limits),
                runner,
                input_modes=self._input_modes,
                block_timeout=self._block_timeout,
            )
            service = self._services.setdefault(os.getpid(), service)  # one step for all threads
        return service


def _mapping(value: object, where: str) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise refusal(where, shown(value), "be a mapping")
    return json_copy(value, where)
