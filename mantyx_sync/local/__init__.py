"""An embedded MANTYX server: real HTTP and event streams on loopback, standard library only.

    from mantyx_sync.local import LocalServer

    with LocalServer() as server:
        print(server.url)

`LocalServer` serves the routes and runs the agent loop with its guards; a `ScriptedModel` plays turns written
down for a test, the `RuleModel` uses the tools it is given, an `OpenAICompatibleModel` asks a model served
elsewhere. A `ScriptedServer` has a script for each run and tells what was sent. `RecordingServer` records what a
client and the real server say to each other, `ReplayServer` plays it back. `LocalGateway` is a SpaceFix gateway for
agents and MCP clients. `mantyx_sync.local.faults` makes things go wrong on demand.
Importing starts nothing.

Where what lies:

    loopback connection loop http frames answers faults   HTTP on loopback: one thread for all sockets
    api_server routes checks sessions eval_routes oauth   the routes of the API
    engine turns toolrounds planning oversight budgets    the agent loop and its guards
    model rules openai scripts script_files               what the agent thinks with; `facts` and `filling` for rules
    store outcomes sent                                   runs with their events, and what a test asks of them
    evals scoring eval_data                               evals
    recording_server relaying notes                       recording
    recording redaction secret_looks rewriting            a recording's file, and what must not be in it
    replay_server playback playing matching               playing it
    gateway gateway_*                                     the SpaceFix gateway
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
from mantyx_sync.local.scripted_server import ScriptedServer
from mantyx_sync.local.scripts import RunScripts
from mantyx_sync.local.sent import Sent, SentRun, SentToolCall
from mantyx_sync.local.server import LocalServer
from mantyx_sync.local.supervisor import Review, Verdict, rule_judge
from mantyx_sync.local.toolset import ServerTool, ToolFile, ToolOutput

if TYPE_CHECKING:
    from mantyx_sync.local.gateway import LocalGateway as LocalGateway
    from mantyx_sync.local.gateway_projects import AgentConnection as AgentConnection
    from mantyx_sync.local.gateway_projects import GatewayCall as GatewayCall
    from mantyx_sync.local.gateway_projects import GatewayProject as GatewayProject
    from mantyx_sync.local.gateway_registration import GatewayPlan as GatewayPlan
    from mantyx_sync.local.recording import RecordingError as RecordingError
    from mantyx_sync.local.recording_server import RecordingServer as RecordingServer
    from mantyx_sync.local.replay_server import ReplayServer as ReplayServer
    from mantyx_sync.local.replay_server import UnmatchedRequest as UnmatchedRequest

# Who serves runs needs nothing of these.
_MODULE_OF = {
    "AgentConnection": "gateway_projects",
    "GatewayCall": "gateway_projects",
    "GatewayPlan": "gateway_registration",
    "GatewayProject": "gateway_projects",
    "LocalGateway": "gateway",
    "RecordingError": "recording",
    "RecordingServer": "recording_server",
    "ReplayServer": "replay_server",
    "UnmatchedRequest": "replay_server",
}

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
    "RecordingError",
    "RecordingServer",
    "ReplayServer",
    "Review",
    "RuleModel",
    "RunScripts",
    "ScriptedModel",
    "ScriptedServer",
    "Sent",
    "SentRun",
    "SentToolCall",
    "ServerTool",
    "Text",
    "Thinking",
    "ToolDeclaration",
    "ToolFile",
    "ToolOutput",
    "ToolUse",
    "TurnEnd",
    "UnmatchedRequest",
    "Usage",
    "Verdict",
    "rule_judge",
    "split_prompt",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
