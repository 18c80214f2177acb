"""An embedded MANTYX server: real HTTP and event streams on loopback, standard library only.

    from mantyx_sync.local import LocalServer

    with LocalServer() as server:
        print(server.url)

`LocalServer` serves the routes and runs the agent loop with its guards; a `ScriptedModel` plays turns written
down for a test, the `RuleModel` uses the tools it is given, an `OpenAICompatibleModel` asks a model served
elsewhere. `LocalGateway` is a SpaceFix gateway for agents and MCP clients. `mantyx_sync.local.faults` makes things go
wrong on demand.
Importing starts nothing.
"""

from __future__ import annotations

from mantyx_sync.local.gateway import LocalGateway
from mantyx_sync.local.gateway_projects import AgentConnection, GatewayCall, GatewayProject
from mantyx_sync.local.gateway_registration import GatewayPlan
from mantyx_sync.local.model import (
    Failure,
    Model,
    ModelFailure,
    ModelRequest,
    Pause,
    ScriptedModel,
    Text,
    Thinking,
    ToolDeclaration,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.oauth import OAuthApp
from mantyx_sync.local.openai import OpenAICompatibleModel
from mantyx_sync.local.plan import PlanDraft, PlanRequest, split_prompt
from mantyx_sync.local.routes import DOCUMENTED_RATE_LIMITS
from mantyx_sync.local.rules import RuleModel
from mantyx_sync.local.server import LocalServer
from mantyx_sync.local.supervisor import Review, Verdict, rule_judge
from mantyx_sync.local.toolset import ServerTool, ToolFile, ToolOutput

__all__ = [
    "AgentConnection",
    "DOCUMENTED_RATE_LIMITS",
    "Failure",
    "GatewayCall",
    "GatewayPlan",
    "GatewayProject",
    "LocalGateway",
    "LocalServer",
    "Model",
    "ModelFailure",
    "ModelRequest",
    "OAuthApp",
    "OpenAICompatibleModel",
    "Pause",
    "PlanDraft",
    "PlanRequest",
    "Review",
    "RuleModel",
    "ScriptedModel",
    "ServerTool",
    "Text",
    "Thinking",
    "ToolDeclaration",
    "ToolFile",
    "ToolOutput",
    "ToolUse",
    "TurnEnd",
    "Usage",
    "Verdict",
    "rule_judge",
    "split_prompt",
]
