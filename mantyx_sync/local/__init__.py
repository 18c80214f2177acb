"""An embedded MANTYX server: real HTTP and event streams on loopback, standard library only.

    from mantyx_sync.local import LocalServer

    with LocalServer() as server:
        print(server.url)

`LocalServer` serves the routes and runs the agent loop; a `ScriptedModel` plays turns written down for a
test, the `RuleModel` uses the tools it is given. `mantyx_sync.local.faults` makes things go wrong on demand.
Importing starts nothing.
"""

from __future__ import annotations

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
from mantyx_sync.local.routes import DOCUMENTED_RATE_LIMITS
from mantyx_sync.local.rules import RuleModel
from mantyx_sync.local.server import LocalServer

__all__ = [
    "DOCUMENTED_RATE_LIMITS",
    "Failure",
    "LocalServer",
    "Model",
    "ModelFailure",
    "ModelRequest",
    "Pause",
    "RuleModel",
    "ScriptedModel",
    "Text",
    "Thinking",
    "ToolDeclaration",
    "ToolUse",
    "TurnEnd",
    "Usage",
]
