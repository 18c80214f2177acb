"""Steer a Loom workflow, and have its agent tasks done by MANTYX runs.

A workflow hands out a task: instructions, tools that it alone can run, and the form of the result. `LoomWorker` claims
it, `MantyxExecutor` does it by a run in which the task's tools are local tools, and what the workflow asks a person is
asked here. Without a URL the Loom service is this very file, started a second time behind stdio, as an installed proxy
would be; it plays one small workflow.

    python examples/loom_worker.py
    LOOM_TOKEN=… python examples/loom_worker.py --url http://127.0.0.1:47110/mcp LOOM INPUT
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import uuid
from typing import Any, Optional

STOCK = {"hose": 4, "rake": 0}
COUNT = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
RESULT = {"type": "object", "properties": {"in_stock": {"type": "integer"}}, "required": ["in_stock"]}


# ---------------------------------------------------------------------------- both ends of it


def steer(url: Optional[str], loom_name: str, given: str) -> None:
    # Imported here: the service does not need them, nor sees a PYTHONPATH by which they might be found.
    from account import connect

    from mantyx_sync.loom import LoomClient, LoomWorker, MantyxExecutor, run_and_wait

    if url:
        loom = LoomClient.connect(url=url, token=os.environ["LOOM_TOKEN"])
    else:
        loom = LoomClient.connect(command=[sys.executable, __file__, "serve"])
    with connect() as client, loom, tempfile.TemporaryDirectory() as claims:
        executor = MantyxExecutor(client, on_event=show_event, timeout=120)
        worker = LoomWorker(
            loom,
            executor,
            store=claims,  # a lasting folder in earnest: a worker that died finds its task again there
            on_task=lambda task: print(f"[task]   {task.agent_id}: {task.instructions}"),
            on_done=lambda _task, error: print(f"[task]   {error or 'done'}"),
        )
        # In earnest a process of its own: `mantyx-sync loom worker module:execute`.
        thread = threading.Thread(target=worker.run_forever)
        thread.start()
        try:
            person = ask if url else ask_who_plays_along
            run = run_and_wait(loom, loom_name, given, on_action=person, on_update=show, timeout=300)
        finally:
            worker.stop()
            thread.join()
        print(f"\n{run.loom_name} {run.status}")
        for artifact in loom.list_artifacts(loom_name=loom_name):
            found = loom.get_artifact(artifact.id)
            print(f"{artifact.stage_name}: {found.data if found else None}")


def show(run: Any) -> None:
    waits = "an agent" if run.pending_agent_call else "a person" if run.pending_action else ""
    print(f"[run]    {run.run_id} {run.status}" + (f" for {waits}" if waits else ""))


def show_event(_task: Any, event: Any) -> None:
    if event.type == "local_tool_call":
        print(f"[agent]  {event.name}({event.args})")


def ask(_run: Any, action: Any) -> Any:
    """Ask the person at the terminal. Nothing here ever answers in a person's place."""
    if not action.is_confirmation:
        return {question.id: input(f"{question.question} ") for question in action.questions}
    return input(f"[person] {action.context} [y/n] ").strip().lower() == "y"


def ask_who_plays_along(_run: Any, action: Any) -> Any:
    """Ask whoever reads this: in the workflow below you have said yes beforehand."""
    print(f"[person] {action.context} yes")
    return True


# ---------------------------------------------------------------------------- a Loom service with one workflow


class Workflow:
    """Count an item, ask whether the list may be sent, send it. One run, in memory; a real service does much more."""

    def __init__(self) -> None:
        self.instance_id = str(uuid.uuid4())
        self.run: Optional[dict[str, Any]] = None
        self.claim_id = ""
        self.result: Any = None

    def call(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        run = self.run
        if tool == "status":
            return {"service": {"instanceId": self.instance_id}}
        if tool == "run":
            self.run = run = {"runId": "RUN-1", "loomName": given["loomName"], "status": "waiting", "revision": 1}
            self.item = given["input"]
            run["pendingAgentCall"] = {"id": "CALL-1", "agentId": "stock keeper", "phase": "available"}
            return {"receipt": {"status": "accepted"}, "run": run}
        if tool == "answer_ask" and run:
            del run["pendingAction"]
            run["status"] = "completed"
            return {"receipt": {"status": "accepted"}, "run": run}
        if tool == "get_run":
            return {"run": run}
        if tool == "list_runs":
            return {"runs": [run] if run else []}
        if tool == "claim_agent_call" and run and self.claim_id in ("", given["claimId"]):
            self.claim_id = given["claimId"]
            return {"task": self.task(), "ownerToken": "known to whoever has claimed the task"}
        if tool == "call_agent_tool":
            item = given["input"]["item"]
            return {"output": {"item": item, "in_stock": STOCK.get(item, 0)}}
        if tool == "complete_agent_call" and run:
            self.result = given["result"]
            del run["pendingAgentCall"]
            question = f"There are {self.result['in_stock']} left. Send the list?"
            run["pendingAction"] = {"id": "ASK-1", "kind": "user_ask_confirmation", "request": {"context": question}}
            return {"receipt": {"runId": "RUN-1", "callId": "CALL-1", "status": "accepted"}}
        artifact = {"id": "ART-1", "loomName": "stock check", "stageName": "list", "revision": 1}
        if tool == "list_artifacts":
            return {"artifacts": {"data": [artifact]}}
        if tool == "get_artifact":
            return {"artifact": {**artifact, "data": {self.item: self.result["in_stock"]}}}
        raise LookupError(tool)

    def task(self) -> dict[str, Any]:
        return {
            "runId": "RUN-1",
            "callId": "CALL-1",
            "agentId": "stock keeper",
            "instructions": f'Count the stock of the item "{self.item}".',
            "skills": [],
            "tools": [{"id": "count-stock", "description": "Count the pieces in stock.", "inputSchema": COUNT}],
            "outputSchema": RESULT,
        }


def serve() -> None:
    """Answer MCP requests on standard input, one a line, until it ends."""
    workflow = Workflow()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = respond(workflow, message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


def respond(workflow: Workflow, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        server = {"name": "loom", "version": "1.0"}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}}
    if method == "tools/list":
        return {"result": {"tools": []}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "Method not found"}}
    try:
        body, is_error = workflow.call(params["name"], params.get("arguments", {})), False
    except LookupError:
        body, is_error = {"error": {"code": "CONFLICT", "message": "not now", "retryable": False}}, True
    return {"result": {"content": [{"type": "text", "text": json.dumps(body)}], "isError": is_error}}


def main() -> None:
    parser = argparse.ArgumentParser(description="Steer a Loom workflow and do its agent tasks.")
    parser.add_argument("--url", help="a service's entry; its token is taken from LOOM_TOKEN")
    parser.add_argument("loom", nargs="?", default="stock check", help="the loom to start")
    parser.add_argument("input", nargs="?", default="hose", help="its input")
    given = parser.parse_args()
    if given.loom == "serve":
        serve()
    else:
        steer(given.url, given.loom, given.input)


if __name__ == "__main__":
    main()
