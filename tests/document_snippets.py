"""The Python snippets of the platform's two source documents, as they stand there, and what they must send.

All are from the page on run guards; the wire protocol's examples are JSON, HTTP and TypeScript. The page's sentences
on sessions name two more call forms (`create_session(loop_detection=..., …)`, `session.send(prompt, …)`): they are the
last entries, with values put in place of the dots.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

__all__ = ["SESSION_SNIPPETS", "SNIPPETS"]

SNIPPETS: List[Tuple[str, str, Dict[str, Any]]] = [
    (
        "loop detection: tuning the thresholds",
        """
result = client.run_agent(
    system_prompt="...",
    prompt="...",
    loop_detection={
        "consecutiveThreshold": 2,
        "hardCutoffThreshold": 4,
    },
)
""",
        {"loopDetection": {"consecutiveThreshold": 2, "hardCutoffThreshold": 4}},
    ),
    (
        "loop detection: disabling the guard for a single run",
        """
client.run_agent(
    system_prompt="...",
    prompt="Iterate freely until you converge.",
    loop_detection=False,
)
""",
        {"loopDetection": False},
    ),
    (
        "tool budgets: adding a budget for a custom tool",
        """
client.run_agent(
    system_prompt="...",
    prompt="...",
    tool_budgets={
        "recall":        {"maxCalls": 8},
        "expensive_api": {"maxCalls": 2},
        "scary_tool":    {"maxCalls": 0},
    },
)
""",
        {"toolBudgets": {"recall": {"maxCalls": 8}, "expensive_api": {"maxCalls": 2}, "scary_tool": {"maxCalls": 0}}},
    ),
    (
        "tool budgets: clearing the runtime defaults",
        """
client.run_agent(
    system_prompt="...",
    prompt="Do a deep dive on this customer.",
    tool_budgets={},
)
""",
        {"toolBudgets": {}},
    ),
    (
        "supervisor: cadence and mid-turn trigger",
        """
client.run_agent(
    system_prompt="...",
    prompt="...",
    supervisor={"interval": 10, "reasoningTrigger": {"chars": 5000, "ms": 60000}},
)
""",
        {"supervisor": {"interval": 10, "reasoningTrigger": {"chars": 5000, "ms": 60000}}},
    ),
    (
        "supervisor: tool-round boundaries alone",
        """
client.run_agent(
    system_prompt="...",
    prompt="...",
    supervisor={"interval": 10, "reasoningTrigger": False},
)
""",
        {"supervisor": {"interval": 10, "reasoningTrigger": False}},
    ),
    (
        "supervisor: opting out",
        """
client.run_agent(system_prompt="...", prompt="...", supervisor=False)
""",
        {"supervisor": False},
    ),
]

SESSION_SNIPPETS: Tuple[str, Dict[str, Any], str, Dict[str, Any]] = (
    """
session = client.create_session(
    system_prompt="...", loop_detection={"consecutiveThreshold": 4}, tool_budgets={"recall": {"maxCalls": 1}},
    supervisor={"interval": 9},
)
""",
    {
        "loopDetection": {"consecutiveThreshold": 4},
        "toolBudgets": {"recall": {"maxCalls": 1}},
        "supervisor": {"interval": 9},
    },
    """
session.send(prompt, loop_detection=False, tool_budgets={}, supervisor=False)
""",
    {"loopDetection": False, "toolBudgets": {}, "supervisor": False},
)
"""A session's defaults, what they are, a message's overrides, what these are."""
