"""Types that describe themselves: pydantic models of either generation, and what pydantic knows by itself.

Nothing is imported from there: a model is recognised by its methods, and other types are handed to pydantic
only if the program has already loaded it.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple

from mantyx_sync.hints.shape import Shape
from mantyx_sync.mismatch import Mismatch

if TYPE_CHECKING:
    from mantyx_sync.hints.compiler import Compiler

__all__ = ["foreign_shape", "is_model"]

_REF = "#/$defs/{model}"


def is_model(hint: Any) -> bool:
    """Tell whether `hint` is a pydantic model class."""
    return isinstance(hint, type) and (_is_second(hint) or _is_first(hint))


def _is_second(hint: Any) -> bool:
    return callable(getattr(hint, "model_json_schema", None)) and callable(getattr(hint, "model_validate", None))


def _is_first(hint: Any) -> bool:
    return hasattr(hint, "__fields__") and callable(getattr(hint, "parse_obj", None)) and callable(hint.schema)


def foreign_shape(compiler: Compiler, hint: Any, where: str) -> Optional[Shape]:
    """Return the shape of a type that describes itself, or None if it does not."""
    known = compiler.definition((hint, ())) if isinstance(hint, type) else None
    if known is not None:
        return known
    found = _described(compiler, hint, where)
    if found is None:
        return None
    schema, convert = found
    schema = _hoist(compiler, schema)
    if not isinstance(hint, type) or "properties" not in schema:
        return Shape(schema, convert, "a valid value")
    return compiler.define((hint, ()), hint, convert, schema)


def _described(compiler: Compiler, hint: Any, where: str) -> Optional[Tuple[Dict[str, Any], Callable[[Any], Any]]]:
    try:
        if isinstance(hint, type) and _is_second(hint):
            schema = hint.model_json_schema(ref_template=_REF)  # type: ignore[attr-defined]
            return schema, _second(hint.model_validate, hint.model_validate_json)  # type: ignore[attr-defined]
        if isinstance(hint, type) and _is_first(hint):
            return hint.schema(ref_template=_REF), _first(hint.parse_obj)  # type: ignore[attr-defined]
        adapter_class = getattr(sys.modules.get("pydantic"), "TypeAdapter", None)
        if adapter_class is not None and _is_of_pydantic(hint):
            adapter = adapter_class(hint)
            schema = adapter.json_schema(ref_template=_REF)
            return schema, _second(adapter.validate_python, adapter.validate_json)
    except Exception as exc:
        name = getattr(hint, "__name__", str(hint))
        raise compiler.refuse(where, f"{name} has no JSON Schema: {type(exc).__name__}: {exc}") from exc
    return None


def _is_of_pydantic(hint: Any) -> bool:
    package = str(getattr(hint, "__module__", "")).split(".")[0]
    return package in ("pydantic", "pydantic_core") or hasattr(hint, "__get_pydantic_core_schema__")


def _second(from_python: Callable[[Any], Any], from_json: Callable[[str], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            return from_python(value)
        except ValueError:
            pass
        # A strict model takes dates, ids and tuples only from JSON, which is what the value was.
        try:
            text = json.dumps(value)
        except (TypeError, ValueError):
            raise Mismatch("is not JSON") from None
        try:
            return from_json(text)
        except ValueError as exc:
            raise _mismatch(exc) from exc

    return convert


def _first(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            return parse(value)
        except ValueError as exc:
            raise _mismatch(exc) from exc

    return convert


def _mismatch(exc: ValueError) -> Mismatch:
    """Take the first entry of a ValidationError: its place and its message, not its input."""
    errors: Any = getattr(exc, "errors", None)
    if errors is None:
        return Mismatch(f"is not accepted: {exc}")
    first: Dict[str, Any] = errors()[0]
    mismatch = Mismatch(f"is not accepted: {first.get('msg', type(exc).__name__)}")
    for item in reversed(first.get("loc", ())):
        if item != "__root__":
            mismatch.at(item if isinstance(item, int) else str(item))
    return mismatch


def _hoist(compiler: Compiler, schema: Dict[str, Any]) -> Dict[str, Any]:
    """Move the definitions of a schema to the root of ours, under names that are free there."""
    schema = dict(schema)
    definitions: Dict[str, Any] = {}
    for keyword in ("$defs", "definitions"):
        definitions.update(schema.pop(keyword, {}))
    names = {name: compiler.free_name(name, name, content) for name, content in definitions.items()}
    renamed = {f"#/$defs/{old}": f"#/$defs/{new}" for old, new in names.items() if old != new}
    for old, content in definitions.items():
        compiler.definitions[names[old]] = _rename(content, renamed)
    only = schema.get("allOf")
    if isinstance(only, list) and len(only) == 1 and list(only[0]) == ["$ref"]:
        schema.update(schema.pop("allOf")[0])  # how a recursive model refers to itself before pydantic 2.9
    result: Dict[str, Any] = _rename(schema, renamed)
    return result


def _rename(node: Any, renamed: Dict[str, str]) -> Any:
    if isinstance(node, dict):
        return {
            key: renamed.get(item, item) if key == "$ref" and isinstance(item, str) else _rename(item, renamed)
            for key, item in node.items()
        }
    if isinstance(node, list):
        return [_rename(item, renamed) for item in node]
    return node
