"""Check the arguments of a tool call against the tool's JSON Schema, on the server's side (wire §3.1)."""

from __future__ import annotations

import functools
import json
import logging
from typing import Any, Mapping, Optional

__all__ = ["check_arguments"]

_log = logging.getLogger(__name__)

MAX_ISSUES = 8
MAX_ISSUE_CHARS = 300


def check_arguments(schema: Mapping[str, Any], arguments: Any) -> list[dict[str, str]]:
    """Return what is wrong with `arguments` as `{"path", "message"}` entries; an empty list when nothing is.

    A schema that is itself broken, or that points outside itself, checks nothing.
    """
    if not isinstance(arguments, Mapping):
        return [{"path": "", "message": f"expected an object, got {type(arguments).__name__}"}]
    if not (schema.keys() - {"type", "title", "description"}) or schema == _EMPTY:
        return []
    validator = _validator(json.dumps(schema, sort_keys=True))
    if validator is None:
        return []
    issues = []
    try:
        for error in validator.iter_errors(arguments):
            path = "/".join(str(step) for step in error.absolute_path)
            issues.append({"path": path, "message": str(error.message)[:MAX_ISSUE_CHARS]})
            if len(issues) == MAX_ISSUES:
                break
    except Exception as error:  # an unresolvable reference or endless recursion shows only now
        _log.warning("a tool's schema cannot be used to check arguments: %s", type(error).__name__)
        return []
    return issues


_EMPTY = {"type": "object", "properties": {}}


@functools.lru_cache(maxsize=256)
def _validator(schema_text: str) -> Optional[Any]:
    # jsonschema costs 40 ms to import: only a server that meets a schema pays for it.
    import jsonschema

    schema = json.loads(schema_text)
    cls = jsonschema.validators.validator_for(schema, default=_newest(jsonschema))
    try:
        cls.check_schema(schema)
    except Exception as error:
        _log.warning("a tool's schema is not valid JSON Schema: %s", type(error).__name__)
        return None
    return cls(schema, **_closed_references(jsonschema, schema))


def _newest(jsonschema: Any) -> Any:
    return getattr(jsonschema, "Draft202012Validator", None) or jsonschema.Draft7Validator


def _closed_references(jsonschema: Any, schema: Any) -> dict[str, Any]:
    """Keep `$ref` inside the schema: nothing is ever fetched on a model's or a client's word."""
    try:
        from referencing import Registry
    except ImportError:
        pass
    else:
        # jsonschema 4.18 and newer fetches through `referencing`, and not at all from an empty registry.
        if any(field.name == "_registry" for field in getattr(_newest(jsonschema), "__attrs_attrs__", ())):
            return {"registry": Registry()}

    class ClosedResolver(jsonschema.RefResolver):  # type: ignore[misc]  # an untyped base
        def resolve_remote(self, uri: str) -> Any:
            raise jsonschema.RefResolutionError(f"remote reference {uri!r} is not followed")

    return {"resolver": ClosedResolver.from_schema(schema)}
