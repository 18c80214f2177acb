"""The client of a Loom service: one method per tool of its tables, and operations that are done once."""

from __future__ import annotations

import threading
from typing import Any, Callable, Mapping, Sequence

from ..checks import json_copy, refusal, seconds, shown, text, whole_number
from ..errors import MantyxConfigError
from ..mcp.errors import McpInputRequired
from ..pages import Page
from ..settings import hidden
from ..transport.secret import Secret
from ..wire import Fields
from .answers import Answer, Interaction, answer_to
from .artifacts import Artifact, Record
from .calls import Caller, ToolCaller, identity, name, unique_id
from .claims import Claim
from .connecting import Path, by_command, by_project, by_url
from .errors import LoomRequestError
from .ledger import bring_about, find_run, pair, read_service
from .operations import LedgerAnswer, Operation, Outcome
from .runs import LoomInfo, LoomRun, PendingAction, Revision, Service, nested
from .tasks import AgentCall, AgentReceipt, AgentTask, AssetContent, ToolOutput

__all__ = ["LoomClient"]

CALL_TIMEOUT_S = 300.0
CONNECT_TIMEOUT_S = 10.0
MAX_PAGE_SIZE = 200
MAX_FAILURE_CHARS = 4096


class LoomClient:
    """Steer the looms of a project. Every method blocks and may be called from any thread.

    Made by `connect`, or from an `McpClient` of the caller's own. Use it as a context manager, or `close()` it: the
    service keeps sessions that are not closed.

    What only asks is asked again when the service has ended the session. What changes something is not:
    `McpSessionGone` says that nothing was executed and that the service may have been restarted, so look at `status()`
    first. For operations (`run`, `answer_ask`, `cancel_run`, `pause_run`, `resume_run`) and for a `LoomWorker` that is
    done.
    """

    def __init__(
        self,
        mcp: ToolCaller,
        *,
        entry: str = "",
        timeout: float = CALL_TIMEOUT_S,
        close: Callable[[], None] | None = None,
    ) -> None:
        """Speak through `mcp`, which stays the caller's.

        Args:
            mcp: An `McpClient`, made with `repeat_after_session_end=False`.
            entry: Names the way to the service in saved operations: they are repeated over the same one only.
            timeout: Seconds a call may take.
            close: Called by `close`.

        Raises:
            MantyxConfigError: `mcp` repeats by itself what must not be repeated before the status was read.
        """
        if getattr(mcp, "repeats_after_session_end", False):
            raise MantyxConfigError("mcp: repeats requests by itself, must be made with repeat_after_session_end=False")
        self._caller = Caller(mcp, seconds(timeout, "timeout"))
        self.entry = entry
        self._close = close

    @classmethod
    def connect(
        cls,
        project: Path | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        command: str | Sequence[str] | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = CALL_TIMEOUT_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        mode: str = "auto",
    ) -> LoomClient:
        """Find a service and open a session (loom §1). Blocks.

        Args:
            project: A folder in the project (default: the working directory), whose files tell port and token.
            url: The entry instead, such as `http://127.0.0.1:47110/mcp`; with `token`.
            token: The service's bearer token.
            command: The stdio proxy's program instead, or a list of it and its arguments.
            args: The proxy's arguments.
            env: Variables for the proxy, beside the few harmless ones that it gets of ours.
            cwd: The proxy's working folder, by which it may find the project.
            timeout: Seconds a call may take.
            connect_timeout: Seconds that opening a connection may take.
            mode: The MCP era, as `McpClient` takes it.

        Raises:
            MantyxConfigError: The arguments do not go together, or `url` is no external entry on loopback.
            LoomDiscoveryError: The project has no service that runs, or its files cannot be trusted.
            McpError, MantyxAuthError, MantyxTimeoutError: The session could not be opened.
        """
        token = hidden(token)  # error trackers record the locals of frames
        if sum(given is not None for given in (project, url, command)) > 1:
            raise MantyxConfigError("connect: give one of project, url and command")
        if (token is not None) != (url is not None):
            raise MantyxConfigError("connect: url and token go together")
        if command is None and (args or env is not None or cwd is not None):
            raise MantyxConfigError("connect: args, env and cwd are the command's; give it as well")
        options: dict[str, Any] = {"timeout": timeout, "mode": mode, "repeat_after_session_end": False}
        if command is not None:
            way = by_command(command, args, env, cwd, **options)
        elif url is not None and token is not None:
            way = by_url(url, token, connect_timeout, **options)
        else:
            way = by_project(project, connect_timeout, **options)
        try:
            way.mcp.open()
        except BaseException:
            way.close()
            raise
        return cls(way.mcp, entry=way.entry, timeout=timeout, close=way.close)

    def within(self, timeout: float) -> LoomClient:
        """Return this client with another time limit for each call; the session stays this one's, to be closed here."""
        return LoomClient(self._caller.mcp, entry=self.entry, timeout=timeout)

    def close(self) -> None:
        """End the session, if `connect` opened it. May be called again."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> LoomClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ what there is

    def status(self) -> Service:
        """Return the running service (`status`); its `instance_id` is what operations are bound to."""
        return read_service(self._caller)

    def list_looms(self) -> tuple[LoomInfo, ...]:
        """Return the looms of the project (`list_looms`), those that cannot be loaded included."""
        return tuple(map(LoomInfo.read, Fields(self._caller.ask("list_looms", {}), "list_looms").objects("looms")))

    def get_run(self, run_id: str) -> LoomRun:
        """Return a run as it is now (`get_run`); it never makes the run go on."""
        return LoomRun.read(self._nested("get_run", {"runId": text(run_id, "run_id")}, "run"))

    def list_runs(self, loom_name: str | None = None) -> tuple[LoomRun, ...]:
        """Return the runs, of one loom or of all (`list_runs`); those of an earlier service are `historical`."""
        body = self._caller.ask("list_runs", {"loomName": loom_name})
        return tuple(map(LoomRun.read, Fields(body, "list_runs").objects("runs")))

    def get_artifact(
        self, artifact_id: str | None = None, *, loom_name: str | None = None, stage_name: str | None = None
    ) -> Artifact | None:
        """Return the latest value of an artifact (`get_artifact`), by id or by loom and stage; `None` if there is none.

        Raises:
            MantyxConfigError: Neither or both ways were given.
        """
        if (artifact_id is None) == (loom_name is None) or (loom_name is None) != (stage_name is None):
            raise MantyxConfigError("get_artifact: give artifact_id, or loom_name and stage_name")
        arguments = _names(artifactId=artifact_id, loomName=loom_name, stageName=stage_name)
        found = Fields(self._caller.ask("get_artifact", arguments), "get_artifact").opt_fields("artifact")
        return None if found is None else Artifact.read(found)

    def list_artifacts(
        self,
        *,
        loom_name: str | None = None,
        stage_name: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Artifact]:
        """Return the artifacts without their data (`list_artifacts`), the newest first; looped over, it walks on.

        Args:
            limit: Items a page, 1 to 200.
            cursor: Where to go on, with the same filters.
        """
        if limit is not None:
            whole_number(limit, "limit", 1, MAX_PAGE_SIZE)
        names = _names(loomName=loom_name, stageName=stage_name)
        body = self._caller.ask("list_artifacts", {**names, "limit": limit, "cursor": cursor})
        page = Fields(body, "list_artifacts")
        inner = page.opt_fields("artifacts") or page
        return Page.read(
            inner,
            map(Artifact.read, inner.objects("data")),
            lambda following: self.list_artifacts(
                loom_name=loom_name, stage_name=stage_name, limit=limit, cursor=following
            ),
        )

    def get_record(self, record_id: str) -> Record | None:
        """Return a record (`get_record`); `None` if there is none."""
        body = self._caller.ask("get_record", {"recordId": text(record_id, "record_id")})
        found = Fields(body, "get_record").opt_fields("record")
        return None if found is None else Record.read(found)

    # ------------------------------------------------------------------ operations

    def run(self, loom_name: str, input: Any, *, timeout: float | None = None) -> Outcome:  # noqa: A002 - its name there
        """Start a loom (`run`); the outcome's `run` is the run.

        This and the four that follow read the status, make an operation of it, submit it as `submit` does, and return
        its outcome if it was accepted. `prepare_…` returns the operation alone, to be saved before it is submitted.

        Args:
            input: What the loom takes, any JSON value.
            timeout: Seconds until what is not decided is given up as pending; `None` is the client's.

        Raises:
            LoomRejected: Nothing was applied; `refusal` is the service's reason, if it gave one.
            LoomIndeterminate: Nobody knows whether it was applied; it must not be submitted again.
            LoomInstanceChanged: The service was restarted meanwhile; likewise. `run` is the run, if it was created.
            LoomPending: Not decided in the time there was: `resolve` it later.
            MantyxConfigError: An argument cannot be used; nothing was sent.
            MantyxNetworkError, MantyxTimeoutError, MantyxAuthError: The status could not be read; nothing was
                submitted.
        """
        return self.submit(self.prepare_run(loom_name, input), timeout=timeout).require_accepted()

    def prepare_run(self, loom_name: str, input: Any) -> Operation:  # noqa: A002 - its name there
        """Return the operation that starts a loom. Reads the status; blocks."""
        return self._prepare("run", loomName=text(loom_name, "loom_name"), input=json_copy(input, "input"))

    def answer_ask(
        self, run_id: str, action: PendingAction, answer: Answer, *, timeout: float | None = None
    ) -> Outcome:
        """Hand in what a person answered to a run that waits (`answer_ask`); raises as `run`.

        Args:
            action: The run's `pending_action`.
            answer: For questions a mapping of ids to texts or `SKIP`; for a confirmation a bool or `Confirmation`. What
                does not fit the action is a `MantyxConfigError`.
        """
        return self.submit(self.prepare_answer(run_id, action, answer), timeout=timeout).require_accepted()

    def prepare_answer(self, run_id: str, action: PendingAction, answer: Answer) -> Operation:
        """Return the operation that hands in an answer. Reads the status; blocks."""
        value = answer_to(action, answer)
        return self._prepare("answer_ask", runId=text(run_id, "run_id"), actionId=action.id, answer=value)

    def cancel_run(self, run_id: str, *, timeout: float | None = None) -> Outcome:
        """Stop a run (`cancel_run`); what was done is not undone. Raises as `run`."""
        return self.submit(self.prepare_cancel(run_id), timeout=timeout).require_accepted()

    def prepare_cancel(self, run_id: str) -> Operation:
        """Return the operation that stops a run. Reads the status; blocks."""
        return self._prepare("cancel_run", runId=text(run_id, "run_id"))

    def pause_run(self, run_id: str, *, timeout: float | None = None) -> Outcome:
        """Have a run pause (`pause_run`): when its current step is done and saved, long after this returns, perhaps.

        Raises as `run`.
        """
        return self.submit(self.prepare_pause(run_id), timeout=timeout).require_accepted()

    def prepare_pause(self, run_id: str) -> Operation:
        """Return the operation that pauses a run. Reads the status; blocks."""
        return self._prepare("pause_run", runId=text(run_id, "run_id"))

    def resume_run(
        self,
        run_id: str,
        expected_revision: Revision,
        *,
        scope: str | None = None,
        abandon_mirror: bool | None = None,
        timeout: float | None = None,
    ) -> Outcome:
        """Have a paused run go on (`resume_run`); raises as `run`.

        Args:
            expected_revision: The `revision` of the run as it was seen, exactly.
        """
        operation = self.prepare_resume(run_id, expected_revision, scope=scope, abandon_mirror=abandon_mirror)
        return self.submit(operation, timeout=timeout).require_accepted()

    def prepare_resume(
        self,
        run_id: str,
        expected_revision: Revision,
        *,
        scope: str | None = None,
        abandon_mirror: bool | None = None,
    ) -> Operation:
        """Return the operation that has a run go on. Reads the status; blocks."""
        if expected_revision is None or isinstance(expected_revision, bool):
            raise refusal("expected_revision", shown(expected_revision), "be the run's revision")
        more = _given(scope=scope, abandonMirror=abandon_mirror)
        revision = json_copy(expected_revision, "expected_revision")
        return self._prepare("resume_run", runId=text(run_id, "run_id"), expectedRevision=revision, **more)

    def interact(self, run_id: str, action_id: str) -> Interaction:
        """Have the service present an action itself (`interact`); blocks while a person looks at it.

        This client announces no forms, so that the result's `status` is usually `unavailable`: show the action
        yourself, then `answer_ask`. It is never repeated: when the answer was lost, look at the run.
        """
        operation = self._prepare("interact", runId=text(run_id, "run_id"), actionId=text(action_id, "action_id"))
        try:
            body = self._caller.act("interact", operation.call_arguments)
        except McpInputRequired:  # a form after all
            return Interaction.unavailable(self.get_run(run_id))
        except LoomRequestError as error:
            if error.code != "CLI_INTERACTION_UNAVAILABLE":
                raise
            return Interaction.unavailable(self.get_run(run_id))
        return Interaction.read(Fields(body, "interact"))

    def submit(self, operation: Operation, *, timeout: float | None = None) -> Outcome:
        """Submit a new operation, once, and return how it stands. Blocks.

        When the answer is lost the ledger is asked (`get_operation`), and only if it does not know the operation is
        the same call sent again. A restarted service is never asked to do it anew; for a `run` the run is looked for.

        Args:
            timeout: Seconds until an operation that is not decided is returned as `pending`.

        Raises:
            MantyxConfigError: It was made for another entry.
            MantyxAuthError: The credential was not accepted; nothing was submitted.
        """
        return self._bring_about(operation, True, timeout)

    def resolve(self, operation: Operation, *, timeout: float | None = None) -> Outcome:
        """Take up an operation that may have been submitted before, by any process; as `submit`, but asks first."""
        return self._bring_about(operation, False, timeout)

    def get_operation(self, operation: Operation) -> LedgerAnswer:
        """Ask the ledger about an operation (`get_operation`)."""
        return LedgerAnswer.read(self._caller.ask("get_operation", pair(operation)))

    def find_run(self, operation: Operation) -> LoomRun | None:
        """Return the run that an operation of kind `run` created (`find_run`), after a restart too; `None` if none."""
        return find_run(self._caller, operation)

    # ------------------------------------------------------------------ agent tasks

    def get_agent_call(self, run_id: str, call_id: str) -> AgentCall:
        """Return a view of an agent call (`get_agent_call`), with the receipts of its tools."""
        return AgentCall.read(self._nested("get_agent_call", _call_ids(run_id, call_id), "agentCall"))

    def claim_agent_call(self, run_id: str, call_id: str, claim_id: str) -> Claim:
        """Take an agent call (`claim_agent_call`).

        Args:
            claim_id: Made once for this worker and call, and kept: claiming again with it is the only way back to the
                task.

        Raises:
            LoomConflict: Another has it, or it is not current any more.
        """
        arguments = {**_call_ids(run_id, call_id), "claimId": identity(claim_id, "claim_id")}
        body = dict(self._caller.act("claim_agent_call", arguments))
        body["ownerToken"] = hidden(body.get("ownerToken"))
        fields = Fields(body, "claim_agent_call")
        return Claim(AgentTask.read(nested(fields, "task")), claim_id, Secret(fields.text("ownerToken")))

    def call_agent_tool(
        self,
        claim: Claim,
        tool_call_id: str,
        tool_id: str,
        input: Any,  # noqa: A002 - its name there
        *,
        cancelled: threading.Event | None = None,
    ) -> ToolOutput:
        """Call a tool of a task (`call_agent_tool`). One at a time.

        Args:
            tool_call_id: New for each call; the same again, with the same input, returns what was kept of it.
            cancelled: Setting it ends the wait with `McpCancelled`; the tool goes on.

        Raises:
            LoomInvalidRequest: The input does not fit; the id is spent, a correction takes a new one.
            LoomConflict: The id came with another input, or the task is not this claim's any more.
            LoomBusy: Another tool runs, or 256 were called.
            LoomRequestError: The tool failed, which ends the run.
        """
        arguments = {
            **claim.reference,
            "toolCallId": identity(tool_call_id, "tool_call_id"),
            "toolId": identity(tool_id, "tool_id"),
            "input": json_copy(input, "input"),
        }
        return ToolOutput.read(self._caller.act("call_agent_tool", arguments, cancelled=cancelled))

    def read_agent_asset(self, claim: Claim, asset_id: str) -> AssetContent:
        """Read a file that a task declares (`read_agent_asset`); at most 1 MiB."""
        arguments = {**claim.reference, "assetId": identity(asset_id, "asset_id")}
        return AssetContent.read(Fields(self._caller.ask("read_agent_asset", arguments), "read_agent_asset"))

    def complete_agent_call(self, claim: Claim, result: Any) -> AgentReceipt:
        """Hand in a task's result, as JSON (`complete_agent_call`). There is one attempt: check it before.

        Repeating it unchanged is harmless. How the run goes on is for `get_run` to say.
        """
        arguments = {**claim.reference, "result": json_copy(result, "result")}
        return self._agent_receipt("complete_agent_call", arguments)

    def fail_agent_call(self, claim: Claim, message: str) -> AgentReceipt:
        """Give a task up, which ends its run as failed (`fail_agent_call`).

        Args:
            message: 1 to 4096 characters, not blank.
        """
        if not isinstance(message, str) or not message.strip() or len(message) > MAX_FAILURE_CHARS:
            got = f"{len(message)} characters" if isinstance(message, str) else shown(message)
            raise refusal("message", got, f"be 1 to {MAX_FAILURE_CHARS} characters, not blank")
        return self._agent_receipt("fail_agent_call", {**claim.reference, "message": message})

    # ------------------------------------------------------------------ mirrors

    def mirror_list(self) -> Mapping[str, Any]:
        """Return the mirrors (`mirror_list`) as the service describes them."""
        return self._caller.ask("mirror_list", {})

    def mirror_inspect(self, mirror_id: str) -> Mapping[str, Any]:
        """Return one mirror (`mirror_inspect`) as the service describes it."""
        return self._caller.ask("mirror_inspect", {"mirrorId": unique_id(mirror_id, "mirror_id")})

    def mirror_restore(
        self, mirror_id: str, target_project: str, scope: str, *, dry_run: bool | None = None
    ) -> Mapping[str, Any]:
        """Restore a mirror into a project (`mirror_restore`). It has no identity: it is never repeated by itself."""
        arguments = {
            "mirrorId": unique_id(mirror_id, "mirror_id"),
            "targetProject": text(target_project, "target_project"),
            "scope": text(scope, "scope"),
            **_given(dryRun=dry_run),
        }
        return self._caller.act("mirror_restore", arguments)

    def mirror_export(self, trace_id: str, target_project: str) -> Mapping[str, Any]:
        """Export a trace (`mirror_export`). It has no identity: it is never repeated by itself."""
        arguments = {
            "traceId": unique_id(trace_id, "trace_id"),
            "targetProject": text(target_project, "target_project"),
        }
        return self._caller.act("mirror_export", arguments)

    # ------------------------------------------------------------------ inside

    def _nested(self, tool: str, arguments: Mapping[str, Any], key: str) -> Fields:
        return nested(Fields(self._caller.ask(tool, arguments), tool), key)

    def _agent_receipt(self, tool: str, arguments: Mapping[str, Any]) -> AgentReceipt:
        body = self._caller.act(tool, arguments)
        return AgentReceipt.read(Fields(body, tool).opt_fields("receipt"), body)

    def _prepare(self, tool: str, **arguments: Any) -> Operation:
        return Operation(tool=tool, arguments=arguments, instance_id=self.status().instance_id, entry=self.entry)

    def _bring_about(self, operation: Operation, is_new: bool, timeout: float | None) -> Outcome:
        if operation.entry != self.entry:
            raise MantyxConfigError(
                f"operation: was made for the entry {operation.entry!r}, this client uses {self.entry!r}; "
                "an operation is repeated over its own entry only"
            )
        limit = self._caller.timeout if timeout is None else seconds(timeout, "timeout")
        return bring_about(self._caller, operation, is_new=is_new, timeout=limit)


def _call_ids(run_id: str, call_id: str) -> dict[str, str]:
    return {"runId": identity(run_id, "run_id"), "callId": identity(call_id, "call_id")}


def _given(**arguments: Any) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if value is not None}


def _names(**given: str | None) -> dict[str, str]:
    return {key: name(value, key) for key, value in given.items() if value is not None}
