"""What a client can ask about evals (http §3): the part of `MantyxClient` that is about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, TypeVar

from .eval_specs import EvalRunArgs, EvalRunSpec
from .spec import check_names, show_arguments

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .eval_results import (
        EvalDatasetDetail,
        EvalDatasetList,
        EvalRunAccepted,
        EvalRunCompare,
        EvalRunDetail,
        EvalRunEvent,
        EvalRunList,
    )
    from .eval_stream import EvalRunStream
    from .evals import Evals
    from .progress import ProgressTo
    from .workspace import Workspace

__all__ = ["EvalCalls"]

F = TypeVar("F", bound=Callable[..., Any])


def _eval_signature(func: F) -> F:
    """Show the fields of `EvalRunSpec` in the signature of a method that takes them as `**fields`."""
    return show_arguments(func, EvalRunArgs, None)


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

    @_eval_signature
    def create_eval_run(self, **fields: Unpack[EvalRunArgs]) -> EvalRunAccepted:
        """Start an eval; nobody answers its local tools unless somebody follows it, as `run_eval` does. One request.

        Args:
            dataset_id: A data set of the workspace; or else `dataset`: one of your own.
            agent_id: An agent of the workspace; or else `agent`: a `RunSpec` of your own, or its fields.
            tools: Tools to offer beside the agent's own; MCP servers and A2A agents are asked what they have first.
            model_id: The model, instead of the agent's.
            overrides: What is to differ from the agent for this eval.
            extra_body: Fields that this package does not know, merged over the request body as they are.

        Raises:
            MantyxConfigError: An argument is not allowed; nothing was sent.
        """
        return self._evals().create_eval_run(_spec(fields))

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

        Args:
            dataset_id: Only evals over this data set.
            agent_id: Only evals of this agent.
            status: Only evals that are `queued`, `running`, `succeeded`, `failed` or `cancelled`.
            limit: Evals a page.
            offset: How many evals to pass by.

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

    @_eval_signature
    def run_eval(
        self,
        *,
        on_event: Callable[[EvalRunEvent], None] | None = None,
        progress: ProgressTo | None = None,
        timeout: float | None = None,
        poll_interval_s: float = 1.0,
        **fields: Unpack[EvalRunArgs],
    ) -> EvalRunDetail:
        """Run an eval to its end, its local tools answered here, and return it however it ended.

        A time-out, Ctrl-C or an error of a callback cancels the eval.

        Args:
            on_event: Called with each event, on the calling thread.
            progress: As `MantyxClient.map`, of `eval cases`: those that did not pass have failed. The eval's record is
                looked at for it.
            timeout: Seconds for the whole eval. `None` waits as long as it takes.
            poll_interval_s: Seconds between two looks at the record, for `progress` or where there is no stream.
            fields: As `create_eval_run`.

        Raises:
            MantyxConfigError: An argument is not allowed; nothing was sent.
            MantyxTimeoutError: `timeout` passed; the eval was cancelled. `run_id` is on the error.
            MantyxNetworkError: The eval could not be followed to its end; it may still be going.
        """
        from .uwsgi_threads import warn_if_threads_are_off

        warn_if_threads_are_off()
        return self._evals().run_eval(
            _spec(fields), on_event=on_event, progress=progress, timeout=timeout, poll_interval=poll_interval_s
        )

    def _evals(self) -> Evals:
        from .evals import Evals

        workspace = self._workspace
        return Evals(
            workspace.api,
            workspace.follow_settings,
            workspace.executor,
            workspace.deadlines,
            workspace.keepers,
            workspace.settings.progress,
        )


def _spec(fields: Mapping[str, Any]) -> EvalRunSpec:
    check_names(fields, EvalRunSpec)
    return EvalRunSpec(**fields)
