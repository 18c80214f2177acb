"""`Agent`: functions of this process, served to MCP clients through the SpaceFix gateway."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, NoReturn, TypeVar, Union, overload

from .. import logs
from ..checks import callbacks, refusal, seconds, sequence, shown, string
from ..errors import MantyxConfigError, MantyxError
from ..limits import SPACEFIX_CALL_TIMEOUT_S
from ..settings import ClientSettings, hidden
from ..transport.signals import stop_signals
from .items import Prompt, Resource, prompt, resource
from .registration import PlanLimits, Registration, summary
from .served import expose
from .status import AgentStatus, CallReport, Disconnect
from .workers import WorkerPool, shared_workers

if TYPE_CHECKING:
    import requests

    from .endpoints import Endpoints
    from .service import Service

__all__ = ["DEFAULT_URL", "Agent"]

DEFAULT_URL = "https://api.spacefix.io"

GRACE_S = 10.0
"""How long calls at work may still be answered when an agent is stopped."""
RENEWAL_GRACE_S = 5.0

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_AgentT = TypeVar("_AgentT", bound="Agent")


class Agent:
    """Functions of this process that MCP clients call through the gateway (spacefix).

    The agent connects out, so nothing has to reach this process. Making one opens no connection and starts no thread;
    `start` does, and `run_forever` for a process that does nothing else. Calls run on a pool of threads that all
    agents of the process share; the agent itself has two threads. All methods may be called from any thread.

    A started agent serves until it is stopped, whether or not somebody holds it. Every process that starts one is an
    agent of its own to the gateway, so start it where the process serves, not where a module is imported: a
    development server that reloads imports twice. In a child of `fork` it is stopped; start it there if it is to
    serve there as well.
    """

    def __init__(
        self,
        tools: Iterable[Any] = (),
        *,
        resources: Iterable[Resource] = (),
        prompts: Iterable[Prompt] = (),
        url: str | None = None,
        agent_key: str | None = None,
        key_source: Callable[[Any], str] | None = None,
        name: str = "",
        workers: Union[int, WorkerPool, None] = None,
        call_timeout: float = SPACEFIX_CALL_TIMEOUT_S,
        connect_timeout: float = 10.0,
        stream_idle_timeout: float = 75.0,
        telemetry: bool = True,
        tracing: bool = True,
        plan_limits: PlanLimits | None = None,
        session: requests.Session | None = None,
        default_headers: Mapping[str, str] | None = None,
        app_info: str = "",
        on_connect: Callable[[AgentStatus], None] | None = None,
        on_disconnect: Callable[[Disconnect], None] | None = None,
        on_call_done: Callable[[CallReport], None] | None = None,
        on_error: Callable[[MantyxError], None] | None = None,
    ) -> None:
        """Check what is to be served, as the gateway would; does no I/O.

        Args:
            tools: Functions, `@tool` functions, local tools, and what `expose` makes of them. More are added by the
                decorators `tool`, `resource` and `prompt`.
            url: The gateway; without it `SPACEFIX_URL`, else the service's own address.
            agent_key: The project's agent key, or a full key; without it `SPACEFIX_AGENT_KEY` when it is started.
            key_source: Called for the key of each request, with a word for why: `"initial"`, or `"unauthorized"` for
                another one after a 401.
            name: For log lines and names of threads, where a process has several agents.
            workers: How many handlers run at once, on a pool of its own; or a pool. `None`: the process's pool of
                16. What is beyond waits, and is told so when its time is nearly over.
            call_timeout: Seconds after which the gateway gives a call up; the project's settings can lower it.
            connect_timeout: Seconds to connect.
            stream_idle_timeout: Seconds of silence behind which a stream counts as dead; the gateway pings every 25.
            telemetry: Report the process's figures every ten seconds, for the dashboard.
            tracing: Make a span for each call where OpenTelemetry is installed.
            plan_limits: What the project's plan allows; the Free plan unless given.
            session: Your own `requests.Session`, as `MantyxClient` takes one.
            default_headers: Sent with every request.
            app_info: Your application's name, for the User-Agent.
            on_connect: Called when the gateway is ready. All of these are called one at a time, on a thread of
                their own.
            on_disconnect: Called when a stream that was ready has ended.
            on_call_done: Called with a report of every call, which holds neither arguments nor results.
            on_error: Called with why an attempt to connect failed.

        Raises:
            MantyxConfigError: Something of this cannot be used, or would not be taken by the gateway.
        """
        agent_key = hidden(agent_key)  # error trackers record the locals of frames
        callbacks(on_connect=on_connect, on_disconnect=on_disconnect, on_call_done=on_call_done, on_error=on_error)
        if agent_key is not None and key_source is not None:
            raise MantyxConfigError("agent_key and key_source: got 2, give one of them")
        for field, value in (
            ("call_timeout", call_timeout),
            ("connect_timeout", connect_timeout),
            ("stream_idle_timeout", stream_idle_timeout),
        ):
            if seconds(value, field) > threading.TIMEOUT_MAX:
                raise refusal(field, shown(value), f"be at most {int(threading.TIMEOUT_MAX)} seconds")
        if plan_limits is not None and not isinstance(plan_limits, PlanLimits):
            raise refusal("plan_limits", shown(plan_limits), "be PlanLimits")
        logs.set_up()
        self.name = string(name, "name")
        self._headers = ClientSettings(default_headers=default_headers or {}, app_info=app_info).headers
        self._workers = _pool(workers)
        self._url = url
        self._auth = _auth(agent_key, key_source)
        self._call_timeout, self._connect_timeout, self._stream_idle_timeout = (
            call_timeout,
            connect_timeout,
            stream_idle_timeout,
        )
        self._telemetry, self._tracing = bool(telemetry), bool(tracing)
        self._plan_limits = plan_limits
        self._session = session
        self._hooks = (on_connect, on_disconnect, on_call_done, on_error)
        self._tools = list(sequence(tools, "tools", "tools"))
        self._resources = list(sequence(resources, "resources", "resources"))
        self._prompts = list(sequence(prompts, "prompts", "prompts"))
        self._locks: dict[int, threading.Lock] = {}  # by process: one may be held by a thread that a fork left behind
        self._service: Service | None = None
        self._base()
        self._registration()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        counts = summary(len(self._tools), len(self._resources), len(self._prompts))
        return f"<Agent{name} {self.status().state}: {counts} at {self.url}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Agent cannot be pickled or copied: it holds a key and a connection. Make one where it is needed; "
            "SPACEFIX_URL and SPACEFIX_AGENT_KEY are read there"
        )

    @property
    def url(self) -> str:
        """The gateway's address."""
        return str(self._base().text)

    # What is served

    @overload
    def tool(
        self,
        function: FunctionT,
        *,
        name: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
    ) -> FunctionT: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        annotations: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def tool(self, function: Any = None, **options: Any) -> Any:
        """Serve a function as a tool; a decorator, with or without options, which are those of `expose`.

        The function stays as it is. On an agent that was started it is served from the next connection on, which
        `update()` makes at once.

        Raises:
            MantyxConfigError: It cannot be a tool.
        """

        def add(function: Any) -> Any:
            self._tools.append(expose(function, **options))
            return function

        return add if function is None else add(function)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
    ) -> Callable[[FunctionT], FunctionT]:
        """Serve what a function returns as a resource: `@agent.resource("orders://all", name="All orders")`.

        Arguments as `Resource`; otherwise as `tool`.
        """
        make = resource(
            uri,
            name=name,
            description=description,
            mime_type=mime_type,
            timeout=timeout,
            max_concurrency=max_concurrency,
        )

        def add(function: FunctionT) -> FunctionT:
            self._resources.append(make(function))
            return function

        return add

    @overload
    def prompt(self, function: FunctionT) -> FunctionT: ...

    @overload
    def prompt(
        self,
        *,
        name: str = "",
        title: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def prompt(
        self,
        function: Any = None,
        *,
        name: str = "",
        title: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
    ) -> Any:
        """Serve a function as a prompt: `@agent.prompt`, or `@agent.prompt(title="Summarise order")`.

        Arguments as `Prompt`; otherwise as `tool`.
        """
        make = prompt(name=name, title=title, description=description, timeout=timeout, max_concurrency=max_concurrency)

        def add(function: Any) -> Any:
            self._prompts.append(make(function))
            return function

        if function is not None and not callable(function):
            raise refusal("prompt", shown(function), "be a function; options have names: @agent.prompt(title=…)")
        return add if function is None else add(function)

    def check(self) -> Mapping[str, Any]:
        """Check what is served, as the gateway would, and return the body that registers it. Does no I/O.

        Raises:
            MantyxConfigError: The gateway would not take it; the message names what and why.
        """
        return self._registration().to_wire()

    def update(
        self,
        *,
        tools: Iterable[Any] | None = None,
        resources: Iterable[Resource] | None = None,
        prompts: Iterable[Prompt] | None = None,
        grace: float = RENEWAL_GRACE_S,
    ) -> None:
        """Serve something else from now on; `None` leaves a list as it is. Does not block.

        A registration is for the whole of a connection, so a started agent connects again; calls that are at work
        get `grace` seconds to be answered before. `wait_ready` waits until the gateway serves the new one. It is also
        what brings an agent back whose registration was refused.

        Raises:
            MantyxConfigError: The gateway would not take it; nothing was changed.
        """
        _check_grace(grace)
        with self._lock():
            new_tools = self._tools if tools is None else list(sequence(tools, "tools", "tools"))
            new_resources = (
                self._resources if resources is None else list(sequence(resources, "resources", "resources"))
            )
            new_prompts = self._prompts if prompts is None else list(sequence(prompts, "prompts", "prompts"))
            registration = Registration(new_tools, new_resources, new_prompts, self._plan_limits)
            self._tools, self._resources, self._prompts = new_tools, new_resources, new_prompts
            service = self._running()
        if service is not None:
            service.register(registration, grace)

    # Serving

    def start(self: _AgentT) -> _AgentT:
        """Connect in the background and serve, until `stop`. Does not wait; `wait_ready` does.

        Best used in a `with` block. An agent that serves already is left alone.

        Raises:
            MantyxConfigError: There is no key, or the gateway would not take what is served.
            MantyxError: There can be no more threads.
        """
        from ..uwsgi_threads import warn_if_threads_are_off
        from .service import Hooks, Service

        warn_if_threads_are_off()
        with self._lock():
            if self._running() is None:
                service = Service(
                    self._registration(),
                    self._endpoints(),
                    self._workers,
                    Hooks(*self._hooks),
                    call_timeout=self._call_timeout,
                    idle_timeout=self._stream_idle_timeout,
                    telemetry=self._telemetry,
                    tracing=self._tracing,
                    label=self.name,
                )
                service.start()
                self._service = service
        return self

    def wait_ready(self, timeout: float | None = 30.0) -> None:
        """Wait until the gateway serves what this agent registers. Blocks.

        Args:
            timeout: Seconds to wait; `None` waits as long as it takes.

        Raises:
            SpaceFixRegistrationError: The gateway does not take the registration.
            MantyxTimeoutError: It was not ready in time; the message says what stands in the way. It goes on trying.
            MantyxError: The agent is not started, or was stopped meanwhile.
        """
        if timeout is not None:
            seconds(timeout, "timeout")
        service = self._running()
        if service is None:
            raise MantyxError("the agent is not started", code="not_started")
        service.wait_ready(timeout)

    def status(self) -> AgentStatus:
        """Return how the agent is now, for health checks: `agent.status().is_healthy`. Does not block."""
        service = self._running()
        return AgentStatus("stopped") if service is None else service.status()

    def stop(self, grace: float = GRACE_S) -> None:
        """Take no more calls, let those at work be answered, and disconnect. Blocks until that is done.

        New calls are told that the agent shuts down. A handler that is still at work after `grace` seconds hears of
        it through its context; its answer is dropped. Called by a handler or a hook, it returns at once and the agent
        ends behind it. A stopped agent can be started again.

        Args:
            grace: Seconds; 0 disconnects at once.
        """
        _check_grace(grace)
        service = self._running()
        if service is not None:
            service.stop(grace)

    def close(self) -> None:
        """Stop serving, as `stop` and the end of a `with` block do. Blocks."""
        self.stop()

    def run_forever(self, *, grace: float = GRACE_S) -> None:
        """Serve until SIGTERM, Ctrl-C, or `stop` from another thread. Blocks.

        A signal stops it as `stop(grace)` does, a second one at once; it returns then. What signals did before is
        restored. Off the main thread, which alone can take signals, `stop` is what ends it.

        Raises:
            MantyxConfigError: There is no key, or the gateway would not take what is served.
            SpaceFixRegistrationError: The gateway does not take it.
        """
        _check_grace(grace)
        with stop_signals() as request:
            self.start()
            service = self._running()
            try:
                while service is not None and not service.is_over and request.number is None:
                    refused = service.refusal
                    if refused is not None:
                        from ..run_events import outcome_again  # not above: what takes time comes behind the handlers

                        raise outcome_again(refused)
                    request.wait()
                self.stop(grace)
            except KeyboardInterrupt:  # pressed twice
                request.is_urgent = True
                self.stop(0)
            except BaseException:
                self.stop(0)
                raise

    def __enter__(self: _AgentT) -> _AgentT:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(0 if isinstance(error, (KeyboardInterrupt, SystemExit)) else GRACE_S)

    def _lock(self) -> threading.Lock:
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _running(self) -> Service | None:
        service = self._service
        return service if service is not None and service.is_here and not service.is_over else None

    def _registration(self) -> Registration:
        return Registration(self._tools, self._resources, self._prompts, self._plan_limits)

    def _base(self) -> Any:
        from ..transport.url import BaseURL

        field = "url" if self._url else "SPACEFIX_URL"
        return BaseURL(self._url or os.environ.get("SPACEFIX_URL") or DEFAULT_URL, field=field, example=DEFAULT_URL)

    def _endpoints(self) -> Endpoints:
        from .endpoints import Endpoints

        auth = self._auth or _auth(hidden(os.environ.get("SPACEFIX_AGENT_KEY")), None)
        if auth is None:
            raise MantyxConfigError("agent_key: missing; pass agent_key= or set SPACEFIX_AGENT_KEY")
        return Endpoints(
            self._base(),
            auth,
            self._headers,
            session=self._session,
            connect_timeout=self._connect_timeout,
            idle_timeout=self._stream_idle_timeout,
        )


def _auth(agent_key: str | None, key_source: Callable[[Any], str] | None) -> Any:
    """Return what puts the key on requests; `None` without one."""
    # Imported here, so that importing this module does not load requests and ssl: gevent wants to be first.
    from ..transport.auth import BearerAuth, TokenAuth

    if key_source is not None:
        if not callable(key_source):
            raise refusal("key_source", shown(key_source), "be a function of a reason")
        return TokenAuth(key_source)
    if not agent_key and agent_key is not None and not isinstance(agent_key, str):
        raise refusal("agent_key", type(agent_key).__name__, "be a string")
    return BearerAuth(agent_key) if agent_key else None


def _pool(workers: Union[int, WorkerPool, None]) -> WorkerPool:
    if workers is None:
        return shared_workers()
    if isinstance(workers, WorkerPool):
        return workers
    if isinstance(workers, bool) or not isinstance(workers, int):
        raise refusal("workers", shown(workers), "be a whole number above 0, a WorkerPool or None")
    return WorkerPool(workers)


def _check_grace(grace: object) -> None:
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace <= threading.TIMEOUT_MAX:
        raise refusal("grace", shown(grace), "be a number of seconds, 0 or above")
