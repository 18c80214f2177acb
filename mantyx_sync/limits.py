"""Every documented limit, said once: validation, error messages and the embedded server read it here.

Sizes are in bytes of UTF-8 unless the name says otherwise.
"""

from __future__ import annotations

import re

# Names (wire §3.1, §7)
TOOL_NAME = re.compile(r"[a-zA-Z0-9_]{1,64}")
OUTPUT_SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
METADATA_KEY = re.compile(r"[A-Za-z0-9._-]{1,64}")

# Structured output (wire §7)
MAX_OUTPUT_SCHEMA_BYTES = 32 * 1024

# Messages and attachments (wire §2.1.1, http §4)
MAX_MESSAGES = 200
MAX_MESSAGE_CHARS = 200_000
MAX_ATTACHMENTS = 20
MAX_INLINE_ATTACHMENT_BYTES = 5 * 1024 * 1024

# Metadata (http §4)
MAX_METADATA_ENTRIES = 16
MAX_METADATA_VALUE_CHARS = 256
MAX_METADATA_BYTES = 4 * 1024

# Reasoning (wire §6)
REASONING_WORDS = {"off": 0, "low": 30, "medium": 50, "high": 80}
MAX_REASONING_LEVEL = 100

# Loop detection (wire §8.1)
MIN_CONSECUTIVE_THRESHOLD = 2
MIN_HARD_CUTOFF_THRESHOLD = 3
MAX_LOOP_THRESHOLD = 100

# Tool budgets (wire §8.2)
MAX_TOOL_BUDGETS = 32
MAX_TOOL_BUDGET_KEY_CHARS = 120
MAX_TOOL_CALLS = 1000
MAX_TOOL_TURNS = 100

# Supervisor (wire §8.4)
MAX_SUPERVISOR_INTERVAL = 100
MAX_REASONING_TRIGGER_CHARS = 50_000
MAX_REASONING_TRIGGER_MS = 600_000

# Tools that live elsewhere (http §4)
MAX_MCP_TOOLS = 64

# Tool results (wire §5)
MAX_TOOL_RESULT_BYTES = 2 * 1024 * 1024
MAX_TOOL_ERROR_BYTES = 8 * 1024
MAX_TOOL_RESULT_FILES = 20
MAX_TOOL_RESULT_FILE_BYTES = 5 * 1024 * 1024
LOCAL_TOOL_TIMEOUT_S = 300.0

# SpaceFix (spacefix, "Limits"); where a plan decides, the Free plan's value
SPACEFIX_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SPACEFIX_MAX_REGISTRATION_BYTES = 512 * 1024
SPACEFIX_MAX_RESULT_BYTES = 4 * 1024 * 1024
SPACEFIX_MAX_TOOLS = 256
SPACEFIX_MAX_SCHEMA_BYTES = 65_536
SPACEFIX_MAX_RESOURCES = 1000
SPACEFIX_MAX_URI_CHARS = 2048
SPACEFIX_MAX_TITLE_CHARS = 200
SPACEFIX_MAX_TRACESTATE_CHARS = 512
SPACEFIX_MAX_SPAN_MS = 3_600_000
SPACEFIX_MAX_CONNECTIONS = 32
SPACEFIX_MAX_CONNECTS_PER_MINUTE = 60
SPACEFIX_MAX_FAILED_KEYS_PER_MINUTE = 30
SPACEFIX_CALL_TIMEOUT_S = 30.0
SPACEFIX_PING_S = 25.0

# Feedback and listings (http §3)
MAX_FEEDBACK_CHARS = 8000
MAX_PAGE_SIZE = 200
DEFAULT_PAGE_SIZE = 50
MAX_REPLAYED_MESSAGES = 500

# File types that attachments and tool result files may have (http §4); every text/* is allowed as well.
ATTACHMENT_TYPES = frozenset(
    {
        "audio/mp4",
        "audio/mpeg",
        "audio/wav",
        "audio/webm",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "application/pdf",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/json",
        "application/xml",
    }
)


def is_attachment_type(mime_type: str) -> bool:
    """Tell whether the platform takes files of this MIME type (parameters such as charset are ignored)."""
    base = mime_type.split(";", 1)[0].strip().lower()
    return base.startswith("text/") or base in ATTACHMENT_TYPES
