"""What a handler may ask about the call it is answering."""

from __future__ import annotations

import threading
import time
from dataclasses import field
from typing import Optional

from mantyx_sync.errors import ToolError
from mantyx_sync.reprs import dataclass
from mantyx_sync.tools.cancellation import Cancellation

__all__ = ["ToolContext"]


@dataclass(frozen=True)
class ToolContext:
    """The call a handler is answering. Annotate a parameter with it, and it is passed in.

    The parameter is not part of the tool's schema: the model neither sees nor sets it. A thread cannot be
    stopped from outside, so a handler that may take long looks at the context now and then.

    Attributes:
        run_id: The run that called.
        tool_use_id: The id of this call.
        name: The tool's name, as the model knows it.
        cancelled: Set when nobody waits for the answer any more.
        deadline: When the answer is due, in the time of `time.monotonic()`; None if there is no limit.
    """

    run_id: str = ""
    tool_use_id: str = ""
    name: str = ""
    cancelled: threading.Event = field(default_factory=Cancellation, repr=False, compare=False)
    deadline: Optional[float] = None

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the deadline, never below 0; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def raise_if_cancelled(self) -> None:
        """Return at once if the answer is still wanted.

        Raises:
            ToolError: The call was cancelled, or its deadline has passed.
        """
        if self.cancelled.is_set():
            raise ToolError("the call was cancelled")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise ToolError("the call took longer than allowed")
