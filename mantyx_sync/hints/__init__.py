"""Type hints as JSON Schema, and JSON values as the types the hints name.

`compile_type` is the way in for a single type (an `output_type`); the parameters of a function are compiled
in `tools.binding` with the same parts. Both directions come from one walk over the hint, so what the schema
promises is what the conversion takes, and jsonschema is not needed for it.
"""

from __future__ import annotations

from typing import Any, Dict

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.hints.annotations import caller_scope
from mantyx_sync.hints.compiler import Compiler
from mantyx_sync.hints.shape import Shape
from mantyx_sync.mismatch import TOO_DEEP, Mismatch

__all__ = ["CompiledType", "compile_type", "inline_root"]

_WRAPPER = "value"


class CompiledType:
    """A type with its JSON Schema.

    Attributes:
        schema: The JSON Schema of the type.
        object_schema: The same with an object at its root, as the platform asks of an output schema (wire §7):
            another type is put under the property `value`.
        wrapped: Whether `object_schema` had to do so.
    """

    def __init__(self, shape: Shape, definitions: Dict[str, Any]) -> None:
        self._shape = shape
        self.schema = inline_root(shape.schema, definitions)
        self.wrapped = self.schema.get("type") != "object"
        self.object_schema = self.schema
        if self.wrapped:
            self.object_schema = {
                "type": "object",
                "properties": {_WRAPPER: shape.schema},
                "required": [_WRAPPER],
                "additionalProperties": False,
            }
            if definitions:
                self.object_schema["$defs"] = definitions

    def parse(self, value: object) -> Any:
        """Convert a JSON value of `schema` to the type.

        Raises:
            Mismatch: It does not fit; `sentence()` says where and why.
        """
        try:
            return self._shape.convert(value)
        except RecursionError:
            raise Mismatch(f"is {TOO_DEEP}") from None

    def parse_object(self, value: object) -> Any:
        """Convert a JSON value of `object_schema` to the type.

        A model that ignores the schema may answer with the bare value; that is taken as well.

        Raises:
            Mismatch: It does not fit; `sentence()` says where and why.
        """
        if self.wrapped and isinstance(value, dict) and set(value) == {_WRAPPER}:
            return self.parse(value[_WRAPPER])
        return self.parse(value)


def compile_type(hint: Any, *, label: str) -> CompiledType:
    """Compile a type.

    Args:
        hint: The type: a class, a typing construct, or the text of one in the words of the calling code.
        label: What it is for, such as `output_type`; error messages start with it.

    Raises:
        MantyxConfigError: It has no JSON form.
    """
    compiler = Compiler(label)
    try:
        shape = compiler.compile(hint, caller_scope(), "the type")
        return CompiledType(shape, compiler.definitions)
    except RecursionError:
        raise MantyxConfigError(f"{label}: the type contains itself without end") from None


def inline_root(schema: Dict[str, Any], definitions: Dict[str, Any]) -> Dict[str, Any]:
    """Put the definitions under a schema; a root that is a mere reference is replaced by what it names."""
    name = schema.get("$ref", "").rpartition("/")[2]
    root = {**definitions[name], **{key: item for key, item in schema.items() if key != "$ref"}} if name else schema
    kept = dict(definitions)
    if name and not _mentions(root, name) and not any(_mentions(item, name) for item in definitions.values()):
        del kept[name]
    return {**root, "$defs": kept} if kept else dict(root)


def _mentions(schema: Any, name: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == f"#/$defs/{name}" or any(_mentions(item, name) for item in schema.values())
    return isinstance(schema, list) and any(_mentions(item, name) for item in schema)
