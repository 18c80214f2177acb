"""Check values against the JSON Schemas of a spec, on the server's side: arguments and answers (wire §3.1, §7)."""

from __future__ import annotations

import functools
import json
from typing import Any, Mapping

from mantyx_sync.schema import SchemaChecker

__all__ = ["check_arguments", "schema_problems"]

_EMPTY = {"type": "object", "properties": {}}


def check_arguments(schema: Mapping[str, Any], arguments: Any) -> list[str]:
    """Return what is wrong with `arguments`, one sentence each; an empty list when nothing is.

    A schema that is itself broken, or that points outside itself, checks nothing.
    """
    if not isinstance(arguments, Mapping):
        return [f"expected an object, got {type(arguments).__name__}"]
    if not (schema.keys() - {"type", "title", "description"}) or schema == _EMPTY:
        return []  # jsonschema takes its time to import: only a server that meets a real schema pays for it
    return schema_problems(schema, arguments)


def schema_problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return what keeps `value` from fitting `schema`, one sentence each."""
    return _checker(json.dumps(schema, sort_keys=True)).problems(value)


@functools.lru_cache(maxsize=256)
def _checker(schema_text: str) -> SchemaChecker:
    return SchemaChecker(json.loads(schema_text), label="a tool or an answer", foreign=True)
