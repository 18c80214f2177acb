"""How much the costly tests do: a good part of it always, all of it where `MANTYX_THOROUGH` is set."""

from __future__ import annotations

import os

__all__ = ["IS_THOROUGH"]

IS_THOROUGH = bool(os.environ.get("MANTYX_THOROUGH"))
