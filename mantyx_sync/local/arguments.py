"""Check the arguments of a tool call against the tool's JSON Schema, on the server's side (wire §3.1)."""

from __future__ import annotations

import functools
import json
from typing import Any, Mapping

from mantyx_sync.schema import SchemaChecker

__all__ = ["check_arguments"]

_EMPTY = {"type": "object", "properties": {}}


def check_arguments(schema: Mapping[str, Any], arguments: Any) -> list[str]:
    """Return what is wrong with `arguments`, one sentence each; an empty list when nothing is.

    A schema that is itself broken, or that points outside itself, checks nothing.
    """
    if not isinstance(arguments, Mapping):
        return [f"expected an object, got {type(arguments).__name__}"]
    if not (schema.keys() - {"type", "title", "description"}) or schema == _EMPTY:
        return []  # jsonschema takes its time to import: only a server that meets a real schema pays for it
    return _checker(json.dumps(schema, sort_keys=True)).problems(arguments)


@functools.lru_cache(maxsize=256)
def _checker(schema_text: str) -> SchemaChecker:
    return SchemaChecker(json.loads(schema_text), label="a tool", foreign=True)
