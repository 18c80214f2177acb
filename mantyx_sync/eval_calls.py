"""What a client can ask about evals (http §3): the part of `MantyxClient` that is about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

if TYPE_CHECKING:
    from .eval_results import (
        EvalDatasetDetail,
        EvalDatasetList,
        EvalRunAccepted,
        EvalRunCompare,
        EvalRunDetail,
        EvalRunEvent,
        EvalRunList,
    )
    from .eval_specs import AgentEvalOverrides, InlineEvalDatasetSpec
    from .eval_stream import EvalRunStream
    from .evals import Evals
    from .workspace import Workspace

__all__ = ["EvalCalls"]


class EvalCalls:
    """Evals of the workspace. Every method blocks and may be called from any thread."""

    _workspace: Workspace

    def list_eval_datasets(self) -> EvalDatasetList:
        """List the data sets. One request."""
        return self._evals().list_eval_datasets()

    def get_eval_dataset(self, dataset_id: str) -> EvalDatasetDetail:
        """Return a data set with its cases. One request.

        Raises:
            MantyxNotFoundError: There is no such data set.
        """
        return self._evals().get_eval_dataset(dataset_id)

    def create_eval_run(
        self,
        *,
        dataset_id: str | None = None,
        dataset: InlineEvalDatasetSpec | Mapping[str, Any] | None = None,
        agent_id: str | None = None,
        agent: Mapping[str, Any] | None = None,
        tools: Iterable[Any] | None = None,
        model_id: str | None = None,
        overrides: AgentEvalOverrides | Mapping[str, Any] | None = None,
    ) -> EvalRunAccepted:
        """Start an eval; nobody answers its local tools unless somebody follows it, as `run_eval` does. One request.

        Args:
            dataset_id: A data set of the workspace; or else `dataset`, one of your own.
            agent_id: An agent of the workspace; or else `agent`, a spec of your own.
            tools: Tools of the agent.
            model_id: The model, instead of the agent's.
            overrides: What is to differ from the agent for this eval.

        Raises:
            MantyxConfigError: An argument is not allowed; nothing was sent.
        """
        from .eval_specs import EvalRunSpec

        spec = EvalRunSpec(
            dataset_id=dataset_id,
            dataset=dataset,
            agent_id=agent_id,
            agent=agent,
            tools=tools,
            model_id=model_id,
            overrides=overrides,
        )
        return self._evals().create_eval_run(spec)

    def list_eval_runs(
        self,
        *,
        dataset_id: str | None = None,
        agent_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> EvalRunList:
        """List evals, newest first; looping over the page fetches the next ones. One request.

        Raises:
            MantyxConfigError: `limit` or `offset` is not allowed.
        """
        return self._evals().list_eval_runs(
            dataset_id=dataset_id, agent_id=agent_id, status=status, limit=limit, offset=offset
        )

    def get_eval_run(self, run_id: str) -> EvalRunDetail:
        """Return an eval with the results of its cases. One request.

        Raises:
            MantyxNotFoundError: There is no such eval.
        """
        return self._evals().get_eval_run(run_id)

    def compare_eval_runs(self, run_a: str, run_b: str) -> EvalRunCompare:
        """Compare two evals case by case. One request.

        Raises:
            MantyxNotFoundError: There is no such eval.
        """
        return self._evals().compare_eval_runs(run_a, run_b)

    def cancel_eval_run(self, run_id: str) -> dict[str, bool]:
        """Ask the server to cancel an eval. One request; asking twice does no harm."""
        return self._evals().cancel_eval_run(run_id)

    def stream_eval_run(self, run_id: str) -> EvalRunStream:
        """Return the events of an eval, from its start, to loop over. Sends nothing yet; runs no tools."""
        return self._evals().stream_eval_run(run_id)

    def run_eval(
        self,
        *,
        dataset_id: str | None = None,
        dataset: InlineEvalDatasetSpec | Mapping[str, Any] | None = None,
        agent_id: str | None = None,
        agent: Mapping[str, Any] | None = None,
        tools: Iterable[Any] | None = None,
        model_id: str | None = None,
        overrides: AgentEvalOverrides | Mapping[str, Any] | None = None,
        on_event: Callable[[EvalRunEvent], None] | None = None,
        progress: Callable[[EvalRunDetail], None] | None = None,
        timeout: float | None = None,
        poll_interval_s: float = 1.0,
    ) -> EvalRunDetail:
        """Run an eval to its end, its local tools answered here, and return it however it ended.

        A time-out, Ctrl-C or an error of a callback cancels the eval.

        Args:
            dataset_id: And the arguments after it: as `create_eval_run`.
            on_event: Called with each event, on the calling thread.
            progress: Called with the eval's record when it has got further, on the calling thread.
            timeout: Seconds for the whole eval. `None` waits as long as it takes.
            poll_interval_s: Seconds between two looks at the record, for `progress` or where there is no stream.

        Raises:
            MantyxConfigError: An argument is not allowed; nothing was sent.
            MantyxTimeoutError: `timeout` passed; the eval was cancelled. `run_id` is on the error.
            MantyxNetworkError: The eval could not be followed to its end; it may still be going.
        """
        from .eval_specs import EvalRunSpec
        from .reader import warn_if_threads_are_off

        warn_if_threads_are_off(stacklevel=3)
        spec = EvalRunSpec(
            dataset_id=dataset_id,
            dataset=dataset,
            agent_id=agent_id,
            agent=agent,
            tools=tools,
            model_id=model_id,
            overrides=overrides,
        )
        return self._evals().run_eval(
            spec, on_event=on_event, progress=progress, timeout=timeout, poll_interval=poll_interval_s
        )

    def _evals(self) -> Evals:
        from .evals import Evals

        workspace = self._workspace
        return Evals(workspace.api, workspace.follow_settings, workspace.executor, workspace.deadlines)
