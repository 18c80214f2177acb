"""Claims: that this worker has a task, kept so that it finds its way back to it (loom §8.2).

There is no lease and no takeover: a claim id that is lost leaves a run waiting until somebody cancels it. So it is
stored before the claim is made, together with what is known of the task's tool calls.
"""

from __future__ import annotations

from dataclasses import field

from ..reprs import dataclass
from ..transport.secret import Secret
from .tasks import AgentTask

__all__ = ["Claim"]


@dataclass(frozen=True)
class Claim:
    """A task that is ours. `owner_token` proves it; it is in no repr, and belongs in no log and no prompt."""

    task: AgentTask
    claim_id: str
    owner_token: Secret = field(repr=False)

    @property
    def reference(self) -> dict[str, str]:
        """What the tools of a task are called with."""
        return {"runId": self.task.run_id, "callId": self.task.call_id, "ownerToken": self.owner_token}
