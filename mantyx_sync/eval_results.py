"""What the server tells about evals: data sets, runs, their results, comparisons and stream events (http §3)."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Callable, Mapping, TypeVar

from mantyx_sync.events import Envelope
from mantyx_sync.pages import Page
from mantyx_sync.reprs import dataclass
from mantyx_sync.views import Viewable
from mantyx_sync.wire import Fields

__all__ = [
    "EVAL_TERMINAL_STATUSES",
    "EVAL_TERMINAL_TYPES",
    "EvalCase",
    "EvalCaseResult",
    "EvalDatasetDetail",
    "EvalDatasetList",
    "EvalDatasetSummary",
    "EvalRunAccepted",
    "EvalRunCompare",
    "EvalRunCompareCase",
    "EvalRunCompareSide",
    "EvalRunDetail",
    "EvalRunEvent",
    "EvalRunList",
    "EvalRunSummary",
]

EVAL_TERMINAL_TYPES = {"succeeded": "run_completed", "failed": "run_error", "cancelled": "run_cancelled"}
"""The type of the last event of an eval's stream, by the status that the eval ends with."""
EVAL_TERMINAL_STATUSES = frozenset(EVAL_TERMINAL_TYPES)

_SummaryT = TypeVar("_SummaryT", bound="EvalRunSummary")


@dataclass(frozen=True)
class EvalDatasetSummary(Viewable):
    """One line of the list of data sets. Times are ISO 8601 text."""

    id: str
    name: str
    description: str | None = None
    case_count: int = 0
    run_count: int = 0
    created_at: str | None = None
    updated_at: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> EvalDatasetSummary:
        """Build it from the fields of one entry of `datasets`."""
        return cls(
            id=fields.text("id"),
            name=fields.opt_text("name") or "",
            description=fields.opt_text("description"),
            case_count=fields.count("caseCount"),
            run_count=fields.count("runCount"),
            created_at=fields.opt_text("createdAt"),
            updated_at=fields.opt_text("updatedAt"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class EvalDatasetList(Page[EvalDatasetSummary]):
    """The data sets of the workspace; can be looped over."""

    @classmethod
    def from_wire(cls, body: object, fetch_next: Callable[[str], EvalDatasetList] | None = None) -> EvalDatasetList:
        """Read the answer of `GET /eval-datasets`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "list of eval data sets")
        return cls.read(fields, map(EvalDatasetSummary.read, fields.objects("datasets")), fetch_next)

    @property
    def datasets(self) -> tuple[EvalDatasetSummary, ...]:
        """The data sets of this page alone."""
        return self.items


@dataclass(frozen=True)
class EvalCase:
    """One case of a data set."""

    id: str
    name: str
    input: Mapping[str, Any] = field(repr=False, hash=False, default_factory=dict)
    scorers: tuple[Mapping[str, Any], ...] = field(hash=False, default=())
    tags: tuple[str, ...] = ()
    tool_mocks: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    created_at: str | None = None
    updated_at: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> EvalCase:
        """Build it from the fields of a `case`."""
        return cls(
            id=fields.text("id"),
            name=fields.opt_text("name") or "",
            input=fields.opt_object("input") or {},
            scorers=_mappings(fields, "scorers"),
            tags=fields.texts("tags"),
            tool_mocks=fields.opt_object("toolMocks"),
            created_at=fields.opt_text("createdAt"),
            updated_at=fields.opt_text("updatedAt"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class EvalDatasetDetail(Viewable):
    """A data set with its cases."""

    id: str
    name: str
    description: str | None = None
    tool_mocks: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    cases: tuple[EvalCase, ...] = field(repr=False, default=())
    created_at: str | None = None
    updated_at: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def from_wire(cls, body: object) -> EvalDatasetDetail:
        """Read the answer of `GET /eval-datasets/{id}`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "eval data set")
        return cls(
            id=fields.text("id"),
            name=fields.opt_text("name") or "",
            description=fields.opt_text("description"),
            tool_mocks=fields.opt_object("toolMocks"),
            cases=tuple(EvalCase.read(case) for case in fields.objects("cases")),
            created_at=fields.opt_text("createdAt"),
            updated_at=fields.opt_text("updatedAt"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class EvalRunAccepted:
    """An eval that was created."""

    run_id: str
    status: str
    stream_url: str
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def from_wire(cls, body: object) -> EvalRunAccepted:
        """Read the answer of `POST /eval-runs`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "created eval run")
        run_id = fields.text("runId")
        if not run_id:
            raise fields.wrong("runId", "the id of an eval run")
        return cls(
            run_id=run_id,
            status=fields.opt_text("status") or "",
            stream_url=fields.opt_text("streamUrl") or "",
            raw=fields.data,
        )


@dataclass(frozen=True)
class EvalRunSummary(Viewable):
    """One line of the list of eval runs. Times are ISO 8601 text; `token_usage` is as the server counts."""

    id: str
    status: str
    dataset_id: str | None = None
    dataset_name: str | None = None
    agent_id: str | None = None
    inline_agent: bool = False
    total_cases: int = 0
    completed_cases: int = 0
    passed_cases: int = 0
    score: float | None = None
    token_usage: Mapping[str, Any] | None = field(hash=False, default=None)
    error: str | None = None
    agent_overrides: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    started_at: str | None = None
    finished_at: str | None = None
    created_at: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        """True if the eval is over."""
        return self.status in EVAL_TERMINAL_STATUSES

    @classmethod
    def read(cls: type[_SummaryT], fields: Fields, **more: Any) -> _SummaryT:
        """Build it from the fields of one entry of `runs`."""
        return cls(
            id=fields.text("id"),
            status=fields.text("status"),
            dataset_id=fields.opt_text("datasetId"),
            dataset_name=fields.opt_text("datasetName"),
            agent_id=fields.opt_text("agentId"),
            inline_agent=fields.opt_bool("inlineAgent") or False,
            total_cases=fields.count("totalCases"),
            completed_cases=fields.count("completedCases"),
            passed_cases=fields.count("passedCases"),
            score=fields.opt_number("score"),
            token_usage=fields.opt_object("tokenUsage"),
            error=fields.opt_text("error"),
            agent_overrides=fields.opt_object("agentOverrides"),
            started_at=fields.opt_text("startedAt"),
            finished_at=fields.opt_text("finishedAt"),
            created_at=fields.opt_text("createdAt"),
            raw=fields.data,
            **more,
        )


@dataclass(frozen=True)
class EvalRunList(Page[EvalRunSummary]):
    """A page of the list of eval runs; looped over, it walks on into the next pages."""

    offset: int = 0

    @classmethod
    def from_wire(
        cls, body: object, offset: int = 0, fetch_next: Callable[[str], EvalRunList] | None = None
    ) -> EvalRunList:
        """Read the answer of `GET /eval-runs`; its pages are told apart by how many runs come before them.

        Args:
            body: The answer.
            offset: The one that was asked for.
            fetch_next: Gets the page that a cursor stands for.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "list of eval runs")
        runs = tuple(EvalRunSummary.read(run) for run in fields.objects("runs"))
        limit, total = fields.opt_int("limit"), fields.opt_int("total")
        told = fields.opt_int("offset")
        offset = offset if told is None else told
        behind = offset + len(runs)
        # Without a limit in the answer the server knows no pages.
        has_more = behind < total if total is not None else limit is not None and len(runs) >= limit
        cursor = str(behind) if runs and has_more else None
        return cls.read(fields, runs, fetch_next, next_cursor=cursor, offset=offset)

    @property
    def runs(self) -> tuple[EvalRunSummary, ...]:
        """The runs of this page alone."""
        return self.items


@dataclass(frozen=True)
class EvalCaseResult(Viewable):
    """How the agent did in one case."""

    id: str
    case_id: str
    case: EvalCase = field(repr=False)
    final_text: str | None = field(repr=False, default=None)
    tool_calls: tuple[Mapping[str, Any], ...] = field(repr=False, hash=False, default=())
    scores: tuple[Mapping[str, Any], ...] = field(hash=False, default=())
    passed: bool = False
    score: float | None = None
    tokens: Mapping[str, Any] | None = field(hash=False, default=None)
    latency_ms: float | None = None
    error: str | None = None
    created_at: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> EvalCaseResult:
        """Build it from the fields of one entry of `results`."""
        case_id, case = fields.opt_text("caseId") or "", fields.opt_fields("case")
        return cls(
            id=fields.text("id"),
            case_id=case_id,
            case=EvalCase(case_id, "") if case is None else EvalCase.read(case),
            final_text=fields.opt_text("finalText"),
            tool_calls=_mappings(fields, "toolCalls"),
            scores=_mappings(fields, "scores"),
            passed=fields.opt_bool("passed") or False,
            score=fields.opt_number("score"),
            tokens=fields.opt_object("tokens"),
            latency_ms=fields.opt_number("latencyMs"),
            error=fields.opt_text("error"),
            created_at=fields.opt_text("createdAt"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class EvalRunDetail(EvalRunSummary):
    """An eval run with the results of its cases."""

    inline_agent_spec: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    agent_spec_snapshot: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    updated_at: str | None = None
    results: tuple[EvalCaseResult, ...] = field(repr=False, default=())

    @classmethod
    def from_wire(cls, body: object) -> EvalRunDetail:
        """Read the answer of `GET /eval-runs/{id}`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "eval run")
        return cls.read(
            fields,
            inline_agent_spec=fields.opt_object("inlineAgentSpec"),
            agent_spec_snapshot=fields.opt_object("agentSpecSnapshot"),
            updated_at=fields.opt_text("updatedAt"),
            results=tuple(EvalCaseResult.read(result) for result in fields.objects("results")),
        )


@dataclass(frozen=True)
class EvalRunCompareSide(EvalRunSummary):
    """One of two eval runs that are compared."""

    agent_spec_snapshot: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)


@dataclass(frozen=True)
class EvalRunCompareCase:
    """One case of a comparison: what each run made of it, as the server has it; `None` if it did not get there."""

    case_id: str
    case_name: str
    case_input: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    a: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    b: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @property
    def change(self) -> str:
        """What became of the case from A to B: `better`, `worse` or `same`, by whether it passed and by its score.

        `only in A` or `only in B` where the other run has not played it, the empty text where neither has.
        """
        if self.a is None or self.b is None:
            return "" if self.a is self.b else "only in B" if self.a is None else "only in A"
        before, after = _standing(self.a), _standing(self.b)
        return "better" if after > before else "worse" if after < before else "same"

    @classmethod
    def read(cls, fields: Fields) -> EvalRunCompareCase:
        """Build it from the fields of one entry of `cases`."""
        return cls(
            case_id=fields.opt_text("caseId") or "",
            case_name=fields.opt_text("caseName") or "",
            case_input=fields.opt_object("caseInput"),
            a=fields.opt_object("a"),
            b=fields.opt_object("b"),
            raw=fields.data,
        )


def _standing(side: Mapping[str, Any]) -> tuple[bool, float]:
    score = side.get("score")
    return bool(side.get("passed")), float(score) if isinstance(score, (int, float)) else 0.0


@dataclass(frozen=True)
class EvalRunCompare(Viewable):
    """Two eval runs side by side, case by case."""

    run_a: EvalRunCompareSide
    run_b: EvalRunCompareSide
    dataset_id: str | None = None
    dataset_name: str | None = None
    cases: tuple[EvalRunCompareCase, ...] = field(repr=False, default=())
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def from_wire(cls, body: object) -> EvalRunCompare:
        """Read the answer of `GET /eval-runs/compare`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "comparison of eval runs")
        sides = []
        for name in ("runA", "runB"):
            side = fields.opt_fields(name)
            if side is None:
                raise fields.wrong(name, "an object")
            sides.append(EvalRunCompareSide.read(side, agent_spec_snapshot=side.opt_object("agentSpecSnapshot")))
        return cls(
            run_a=sides[0],
            run_b=sides[1],
            dataset_id=fields.opt_text("datasetId"),
            dataset_name=fields.opt_text("datasetName"),
            cases=tuple(EvalRunCompareCase.read(case) for case in fields.objects("cases")),
            raw=fields.data,
        )


@dataclass(frozen=True)
class EvalRunEvent:
    """One event of an eval's stream. `data` is its payload with the wire's names; `seq` is `None` without a number."""

    type: str
    data: Mapping[str, Any] = field(hash=False, default_factory=dict)
    seq: int | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        """True if no event follows: the eval is over."""
        return self.type in _TERMINAL_TYPES

    @classmethod
    def read(cls, envelope: Envelope) -> EvalRunEvent:
        """Build it from an envelope, as `read_envelope` makes it of what came."""
        seq, data = envelope["seq"], envelope["data"]
        return cls(envelope["type"], data if isinstance(data, Mapping) else {}, seq if seq >= 0 else None, envelope)

    @classmethod
    def of_record(cls, record: EvalRunSummary) -> EvalRunEvent:
        """Make the last event of an eval that is over although its stream did not say so; `raw` is empty."""
        data: dict[str, Any] = {"runId": record.id, "status": record.status}
        if record.error is not None:
            data["error"] = record.error
        return cls(EVAL_TERMINAL_TYPES[record.status], data)


_TERMINAL_TYPES = frozenset(EVAL_TERMINAL_TYPES.values())


def _mappings(fields: Fields, key: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(item.data for item in fields.objects(key))
