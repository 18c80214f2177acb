"""The routes of evals: data sets to look at, runs to start, follow, compare and cancel (http §3)."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from mantyx_sync.local.answers import (
    Answer,
    StreamResponse,
    read_integer,
    read_last_seq,
    read_limit,
    read_object,
    refuse,
)
from mantyx_sync.local.checks import InvalidRequest, check_spec
from mantyx_sync.local.eval_data import EvalDataset, apply_overrides, read_dataset, read_overrides
from mantyx_sync.local.evals import EvalRun
from mantyx_sync.local.http import Request, json_response
from mantyx_sync.local.workspace import Workspace

__all__ = ["EvalRoutes"]


class EvalRoutes:
    """The routes below `/eval-datasets` and `/eval-runs`. A handler answers at once and never blocks.

    Raises:
        ValueError: A configured data set is not one, or two have the same id.
    """

    def __init__(self, workspace: Workspace, datasets: Iterable[Mapping[str, Any]] = ()) -> None:
        self._workspace = workspace
        self.datasets: dict[str, EvalDataset] = {}
        self.runs: dict[str, EvalRun] = {}
        for number, value in enumerate(datasets, 1):
            try:
                dataset = read_dataset(value, f"eval_datasets[{number - 1}]", number=number)
            except InvalidRequest as problem:
                raise ValueError(str(problem)) from None
            if dataset.id in self.datasets:
                raise ValueError(f"eval_datasets[{number - 1}]: there is another data set with the id {dataset.id!r}")
            self.datasets[dataset.id] = dataset

    def abandon(self) -> None:
        """End all evals at once, because the server stops."""
        for run in tuple(self.runs.values()):
            if not run.is_terminal:
                run.abandon()

    def list_datasets(self, _request: Request, _credential: str) -> Answer:
        """Answer `GET /eval-datasets`."""
        datasets = [dataset.to_summary(self._count(dataset)) for dataset in self.datasets.values()]
        return json_response(200, {"datasets": datasets})

    def dataset(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /eval-datasets/{id}`."""
        dataset = self._dataset(request.segments[5])
        return json_response(200, dataset.to_detail(self._count(dataset)))

    def _count(self, dataset: EvalDataset) -> int:
        return sum(run.dataset.id == dataset.id for run in tuple(self.runs.values()))

    def _dataset(self, dataset_id: str) -> EvalDataset:
        dataset = self.datasets.get(dataset_id)
        if dataset is None:
            raise refuse(404, "not_found", f"There is no data set {dataset_id!r} in this workspace.")
        return dataset

    def _run(self, run_id: str) -> EvalRun:
        run = self.runs.get(run_id)
        if run is None:
            raise refuse(404, "not_found", f"There is no eval run {run_id!r} in this workspace.")
        return run

    def create(self, request: Request, credential: str) -> Answer:
        """Answer `POST /eval-runs`."""
        body = read_object(request)
        for names in (("datasetId", "dataset"), ("agentId", "agent")):
            if sum(body.get(name) is not None for name in names) != 1:
                raise InvalidRequest(f"exactly one of {names[0]} and {names[1]} is required")
        for name in ("datasetId", "agentId", "modelId"):
            if body.get(name) is not None and not isinstance(body[name], str):
                raise InvalidRequest(f"{name} must be a string")
        dataset = read_dataset(body["dataset"]) if body.get("dataset") is not None else self._dataset(body["datasetId"])
        spec = self._spec(body, read_overrides(body.get("overrides")) or {}, credential)
        self._workspace.resolve_model(spec)  # refused now rather than case by case
        run = EvalRun(body, dataset, spec, self._workspace, self._workspace.on_event)
        self.runs[run.id] = run
        self._workspace.spawn(run.play)
        path = self._workspace.path("eval-runs", run.id, "stream")
        return json_response(202, {"runId": run.id, "status": "queued", "streamUrl": path})

    def _spec(self, body: Mapping[str, Any], overrides: Mapping[str, Any], credential: str) -> Mapping[str, Any]:
        """Build the spec that all cases share."""
        agent = body.get("agent")
        if agent is not None and not isinstance(agent, dict):
            raise InvalidRequest("agent must be an object")
        spec: dict[str, Any] = dict(agent) if agent is not None else {"agentId": body["agentId"]}
        for name in ("prompt", "messages"):  # the cases say what is said
            spec.pop(name, None)
        check_spec(spec, needs_input=False)
        if body.get("tools") is not None:
            if not isinstance(body["tools"], list):
                raise InvalidRequest("tools must be an array")
            spec["tools"] = [*(spec.get("tools") or ()), *body["tools"]]
            check_spec(spec, needs_input=False)
        spec = dict(self._workspace.with_agent(spec, credential))
        if body.get("modelId"):
            spec["modelId"] = body["modelId"]
        changed = apply_overrides(spec, overrides)
        if overrides.get("llmProviderId") and not overrides.get("model"):
            changed["modelId"] = self._model_of(overrides["llmProviderId"], changed.get("modelId"))
        return {name: value for name, value in changed.items() if value is not None}

    def _model_of(self, provider: str, model_id: str | None) -> str | None:
        """Return the first model of a provider in the catalog; without a catalog the model stays."""
        models = self._workspace.settings.models
        if models is None:
            return model_id
        found = [str(entry["id"]) for entry in models if entry.get("provider") == provider]
        if not found:
            raise refuse(400, "invalid_model", f"There is no model of the provider {provider!r} in this workspace.")
        return found[0]

    def list_runs(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /eval-runs`, newest first."""
        limit = read_limit(request)
        offset = read_integer(request, "offset", 0, 10**9, 0)
        dataset_id, agent_id, status = (request.first(name) for name in ("datasetId", "agentId", "status"))
        found = [
            run
            for run in reversed(tuple(self.runs.values()))
            if (dataset_id is None or run.dataset.id == dataset_id)
            and (agent_id is None or run.agent_id == agent_id)
            and (status is None or run.status == status)
        ]
        page = [run.to_summary() for run in found[offset : offset + limit]]
        return json_response(200, {"runs": page, "limit": limit, "offset": offset, "total": len(found)})

    def detail(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /eval-runs/{id}`."""
        return json_response(200, self._run(request.segments[5]).to_detail())

    def stream(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /eval-runs/{id}/stream`: the log from its beginning, or after `Last-Event-ID`."""
        return StreamResponse(self._run(request.segments[5]), read_last_seq(request))

    def cancel(self, request: Request, _credential: str) -> Answer:
        """Answer `POST /eval-runs/{id}/cancel`."""
        run = self._run(request.segments[5])
        if not run.is_terminal:
            run.cancel()
        return json_response(200, {"ok": True})

    def compare(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /eval-runs/compare?a=&b=`: two runs of one data set, case by case."""
        sides = []
        for name in ("a", "b"):
            run_id = request.first(name)
            if not run_id:
                raise InvalidRequest(f"{name} must name an eval run")
            sides.append(self._run(run_id))
        first, second = sides
        if first.dataset.id != second.dataset.id:
            raise InvalidRequest("only runs of the same data set can be compared")
        details = [run.to_detail() for run in sides]
        results = [{result["caseId"]: result for result in detail.pop("results")} for detail in details]
        return json_response(
            200,
            {
                "datasetId": first.dataset.id,
                "datasetName": first.dataset.name,
                "runA": details[0],
                "runB": details[1],
                "cases": [
                    {
                        "caseId": case.id,
                        "caseName": case.name,
                        "caseInput": dict(case.input),
                        "a": results[0].get(case.id),
                        "b": results[1].get(case.id),
                    }
                    for case in first.dataset.cases
                ],
            },
        )
