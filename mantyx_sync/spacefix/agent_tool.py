"""A MANTYX agent as a tool of the gateway: an MCP client asks, a one-shot run answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Mapping

from ..checks import kind_of, refusal, text
from ..errors import MantyxError, MantyxRunError, MantyxTimeoutError, ToolError
from ..spec import build_spec, spec_signature
from ..tools.cancellation import Cancellation
from ..tools.context import ToolContext
from ..tools.function import define_local_tool
from .handlers import check_name
from .served import ServedTool, expose

if TYPE_CHECKING:
    from ..client import MantyxClient
    from ..run import Run

__all__ = ["agent_tool"]

log = logging.getLogger(__name__)

_MARGIN_S = 1.0


@spec_signature(without=("prompt", "name"))
def agent_tool(
    client: MantyxClient,
    *,
    name: str,
    description: str,
    annotations: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
    output_type: Any = None,
    **spec: Any,
) -> ServedTool:
    """Offer a MANTYX agent to MCP clients as a tool: `Agent(tools=[agent_tool(client, name="support", …)])`.

    The tool takes a text `prompt`. Each call is a run of its own, without memory of others; it is cancelled when its
    caller is lost or its time is over, which is half a minute at most: give the agent a task that fits. What goes
    wrong is told in a few words, the rest is logged. Local tools of the run are called in this process.

    Args:
        client: Starts the runs; it is not closed.
        name: 1 to 64 letters, digits, `_` and `-`.
        description: What the calling model reads: what the agent can be asked.
        annotations: As `ServedTool`.
        timeout: Seconds a call may take; `None` for the gateway's own limit.
        max_concurrency: How many runs may go on at once.
        output_type: As `MantyxClient.run_agent`; the answer is the run's `output` then, not its text.
        spec: Fields of `RunSpec` for every run.

    Raises:
        MantyxConfigError: Something of this is not allowed.
        TypeError: A field has no such name.
    """
    if not callable(getattr(client, "start_agent", None)):
        raise refusal("client", kind_of(client), "be a MantyxClient")  # it may be a key
    check_name(name, "a tool's name")
    text(description, "description")
    if "prompt" in spec:
        raise refusal("prompt", "a text", "be left out: it is what the caller of the tool asks")
    build_spec({**spec, "prompt": "…"})  # what is wrong with it is said now, not to the first caller

    def ask(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        return _Question(client, name, spec, output_type).ask(arguments["prompt"], context)

    inner = define_local_tool(
        name=name.replace("-", "_"),
        description=description,
        parameters={
            "type": "object",
            "properties": {"prompt": {"type": "string", "minLength": 1, "description": "What to ask the agent."}},
            "required": ["prompt"],
            "additionalProperties": False,
        },
        execute=ask,
    )
    return expose(inner, name=name, annotations=annotations, timeout=timeout, max_concurrency=max_concurrency)


class _Question:
    """One call of an agent: its run, followed until it has ended, nobody wants to know any more, or time is over."""

    def __init__(self, client: MantyxClient, name: str, spec: Any, output_type: Any) -> None:
        self._client = client
        self._name = name
        self._spec = spec
        self._output_type = output_type

    def ask(self, prompt: str, context: ToolContext) -> Any:
        """Return the agent's answer. Blocks.

        Raises:
            ToolError: There is none, in words for whoever asked.
        """
        left = context.remaining
        # The caller is to hear of it while it still listens.
        timeout = None if left is None else left - min(_MARGIN_S, left / 10)
        if context.cancelled.is_set() or (timeout is not None and timeout <= 0):
            raise ToolError("the call was cancelled")
        try:
            run = self._client.start_agent(prompt=prompt, timeout=timeout, output_type=self._output_type, **self._spec)
            return self._follow(run, context)
        except MantyxTimeoutError:
            log.warning("tool %r: its run did not end in time and was cancelled", self._name)
            raise ToolError(f"{self._name} did not answer in time. Ask for less at once.") from None
        except MantyxRunError as error:
            log.warning("tool %r: %s", self._name, error)
            again = "; trying again may help" if error.retryable else ""
            raise ToolError(f"{self._name} could not answer ({error.error_class or error.subtype}){again}") from None
        except MantyxError as error:
            if context.cancelled.is_set():
                raise ToolError("the call was cancelled") from None
            log.warning("tool %r: %s", self._name, error)
            raise ToolError(f"{self._name} cannot be asked at present ({type(error).__name__})") from None

    def _follow(self, run: Run, context: ToolContext) -> Any:
        # Letting go of the run ends the wait for its result; telling the server takes a request, and is done here.
        cancelled = context.cancelled
        take_back = cancelled.add(run.let_go) if isinstance(cancelled, Cancellation) else None
        try:
            result = run.result()
            return result.text if self._output_type is None else result.output
        finally:
            if take_back is not None:
                take_back()
            if context.cancelled.is_set():
                log.info("tool %r: run %s is cancelled with its call", self._name, run.run_id)
                self._cancel(run)

    def _cancel(self, run: Run) -> None:
        try:
            self._client.with_options(timeout=2.0, max_retries=0).cancel_run(run.run_id)
        except MantyxError as error:
            log.info("run %s: the server could not be asked to cancel it: %s", run.run_id, error)
