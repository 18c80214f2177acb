"""The command line: `python -m mantyx_sync`, also installed as `mantyx-sync`."""

from __future__ import annotations

from .main import main

__all__ = ["main"]
