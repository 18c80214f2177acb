"""The one workspace of the embedded server: its settings, agents and models, and how a spec becomes a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence
from urllib.parse import quote

from mantyx_sync.local.answers import refuse
from mantyx_sync.local.modelinfo import model_info
from mantyx_sync.local.store import EventLog, Run, Store, new_id

__all__ = ["ApiSettings", "Workspace"]


@dataclass
class ApiSettings:
    """What the routes are configured with; `LocalServer` documents each."""

    api_key: str
    workspace_slug: str
    allowed_agents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Optional[Sequence[Mapping[str, Any]]] = None
    default_model_id: str = "local:scripted"
    rate_limits: Optional[Mapping[str, int]] = None
    clock: Callable[[], float] = time.time


class Workspace:
    """Knows the agents and models, and makes and starts runs. Safe to use from several threads.

    Args:
        settings: The server's configuration.
        store: Where runs are kept.
        play: Plays a run to its end on the calling thread.
        spawn: Runs a function on another thread, soon.
        on_event: Called whenever a log grows.
    """

    def __init__(
        self,
        settings: ApiSettings,
        store: Store,
        *,
        play: Callable[[Run], None],
        spawn: Callable[[Callable[[], None]], None],
        on_event: Callable[[EventLog], None],
    ) -> None:
        self.settings = settings
        self.store = store
        self.play = play
        self.spawn = spawn
        self.on_event = on_event

    def path(self, *segments: str) -> str:
        """Build the path of a route below the workspace's prefix."""
        slug = quote(self.settings.workspace_slug, safe="")
        return "/".join((f"/api/v1/workspaces/{slug}", *segments))

    def with_agent(self, spec: Mapping[str, Any], credential: str) -> Mapping[str, Any]:
        """Complete a spec by the agent that its `agentId` names.

        The agent's prompt stands, its tools are joined by the spec's, and of all else the spec's value counts.
        Raises `Refused`: no such agent, or none for this credential.
        """
        agent_id = spec.get("agentId")
        if not agent_id:
            return spec
        agent = self.agent(agent_id, credential)
        merged = {**agent, **{name: value for name, value in spec.items() if value is not None}}
        if agent.get("systemPrompt"):
            merged["systemPrompt"] = agent["systemPrompt"]
        tools = list(spec.get("tools") or ())
        names = {ref.get("name") for ref in tools if "name" in ref}
        tools[:0] = [ref for ref in agent.get("tools") or () if ref.get("name") not in names]
        if tools:
            merged["tools"] = tools
        return merged

    def agent(self, agent_id: str, credential: str) -> Mapping[str, Any]:
        """Return the spec of an agent. Raises `Refused`."""
        allowed = self.settings.allowed_agents.get(credential)
        if allowed is not None and agent_id not in allowed:
            raise refuse(403, "forbidden", f"This credential may not use the agent {agent_id!r}.")
        agent = self.settings.agents.get(agent_id)
        if agent is None:
            raise refuse(404, "not_found", f"There is no agent {agent_id!r} in this workspace.")
        return agent

    def resolve_model(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Build the `model` object of terminal events (wire §4.8.1). Raises `Refused`: 400 `invalid_model`."""
        model_id = spec.get("modelId") or self.settings.default_model_id
        catalog = self.settings.models
        if catalog is not None and all(entry["id"] != model_id for entry in catalog):
            raise refuse(
                400,
                "invalid_model",
                f"There is no model {model_id!r} in this workspace.",
                candidates=sorted(str(entry["id"]) for entry in catalog),
            )
        return model_info(model_id, catalog, spec.get("reasoningLevel"))

    def make_run(
        self,
        spec: Mapping[str, Any],
        *,
        session_id: str | None = None,
        on_event: Callable[[EventLog], None] | None = None,
    ) -> Run:
        """Make a run of a checked and complete spec; it is neither kept nor started yet. Raises `Refused`."""
        return Run(
            new_id("run"),
            spec,
            model=self.resolve_model(spec),
            session_id=session_id,
            on_event=on_event or self.on_event,
        )

    def start(self, run: Run) -> None:
        """Keep a run and play it on another thread."""
        self.store.add(run)
        self.spawn(lambda: self.play(run))
