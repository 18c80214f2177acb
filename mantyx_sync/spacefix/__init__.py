"""SpaceFix: serve functions of this process to MCP clients through the gateway.

    from mantyx_sync.spacefix import Agent

    agent = Agent(tools=[get_order])          # SPACEFIX_URL, SPACEFIX_AGENT_KEY
    agent.run_forever()

Importing starts nothing.
"""

from __future__ import annotations

from .agent import DEFAULT_URL, Agent
from .agent_tool import agent_tool
from .errors import SpaceFixRegistrationError
from .items import Prompt, Resource, prompt, resource
from .registration import PlanLimits, Registration, check_registration
from .served import ServedTool, expose
from .status import AgentStatus, CallReport, Disconnect
from .trace import TraceContext, current_trace
from .workers import WorkerPool

__all__ = [
    "DEFAULT_URL",
    "Agent",
    "AgentStatus",
    "CallReport",
    "Disconnect",
    "PlanLimits",
    "Prompt",
    "Registration",
    "Resource",
    "ServedTool",
    "SpaceFixRegistrationError",
    "TraceContext",
    "WorkerPool",
    "agent_tool",
    "check_registration",
    "current_trace",
    "expose",
    "prompt",
    "resource",
]
