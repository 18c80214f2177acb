"""Classes with named fields as type hints: dataclasses, TypedDicts and named tuples."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Tuple

from mantyx_sync.hints.annotations import Scope, class_scope, own_annotations
from mantyx_sync.hints.docstrings import DocInfo, read_docstring
from mantyx_sync.hints.metadata import NO_DEFAULT
from mantyx_sync.hints.record import Field, Record, object_schema, with_default
from mantyx_sync.hints.shape import Shape

if TYPE_CHECKING:
    from mantyx_sync.hints.compiler import Compiler

__all__ = ["is_record_class", "record_shape"]


def is_record_class(cls: Any) -> bool:
    """Tell whether `record_shape` knows the class."""
    return isinstance(cls, type) and (dataclasses.is_dataclass(cls) or _is_typed_dict(cls) or _is_named_tuple(cls))


def record_shape(compiler: Compiler, cls: type, arguments: Tuple[Any, ...], scope: Scope, where: str) -> Shape:
    """Return the shape of a class with named fields; its schema goes to the definitions of the root.

    Args:
        compiler: Keeps the definitions; a class that contains itself meets its own entry there.
        cls: The class.
        arguments: What its type variables stand for, in `Box[int]`.
        scope: Where the hint was written.
        where: What the hint belongs to, for messages.
    """
    known = compiler.definition((cls, arguments))
    if known is not None:
        return known
    inner = class_scope(cls, scope)
    parameters = getattr(cls, "__parameters__", ()) or getattr(cls, "__type_params__", ())
    if arguments:
        bound = {key: scope.typevars.get(item, item) for key, item in zip(parameters, arguments)}
        inner = inner.with_typevars(bound)
    doc = _class_doc(cls)
    late: List[Record] = []
    # The placeholder stands in wherever the class contains itself; it converts through the finished record.
    shape = compiler.define((cls, arguments), cls, lambda value: late[0].convert(value))
    if _is_typed_dict(cls):
        fields, build = _typed_dict_fields(compiler, cls, inner, doc, where)
    elif dataclasses.is_dataclass(cls):
        fields, build = _dataclass_fields(compiler, cls, inner, doc, where)
    else:
        fields, build = _named_tuple_fields(compiler, cls, inner, doc, where)
    late.append(Record(fields, build))
    compiler.fill(shape, object_schema(fields, description=doc.description))
    return shape


_Fields = Tuple[List[Field], Callable[..., Any]]


def _dataclass_fields(compiler: Compiler, cls: Any, scope: Scope, doc: DocInfo, where: str) -> _Fields:
    for name, hint in _annotations(cls).items():
        if isinstance(hint, dataclasses.InitVar) or (isinstance(hint, str) and "InitVar" in hint):
            raise compiler.refuse(where, f"field '{name}' of {cls.__name__} is an InitVar, which has no JSON form")
    fields = []
    for item in dataclasses.fields(cls):
        if not item.init:
            continue
        owner = _owner(cls, item.name)
        # A field inherited from another module is evaluated in that module.
        field_scope = scope if owner is cls else class_scope(owner, scope).with_typevars(scope.typevars)
        text = item.metadata.get("description") or doc.parameters.get(item.name, "")
        has_default = item.default is not dataclasses.MISSING
        required = not has_default and item.default_factory is dataclasses.MISSING
        shape = compiler.field(item.type, field_scope, f"{where}, field '{item.name}' of {cls.__name__}", str(text))
        fields.append(Field(item.name, with_default(shape, item.default if has_default else NO_DEFAULT), required))
    return fields, cls


def _typed_dict_fields(compiler: Compiler, cls: Any, scope: Scope, doc: DocInfo, where: str) -> _Fields:
    fields = []
    for name, hint in _annotations(cls).items():
        place = f"{where}, key '{name}' of {cls.__name__}"
        required = name in getattr(cls, "__required_keys__", ())
        # Under postponed evaluation the class itself could not see Required and NotRequired.
        marker = compiler.requirement(hint, scope, place)
        if marker is not None:
            required = marker
        shape = compiler.field(hint, scope, place, doc.parameters.get(name, ""))
        fields.append(Field(name, shape, required))
    return fields, dict


def _named_tuple_fields(compiler: Compiler, cls: Any, scope: Scope, doc: DocInfo, where: str) -> _Fields:
    hints = _annotations(cls)
    defaults: Mapping[str, Any] = cls._field_defaults
    fields = []
    for name in cls._fields:
        place = f"{where}, field '{name}' of {cls.__name__}"
        shape = compiler.field(hints.get(name, Any), scope, place, doc.parameters.get(name, ""))
        default = defaults.get(name, NO_DEFAULT)
        fields.append(Field(name, with_default(shape, default), default is NO_DEFAULT))
    return fields, cls


def _annotations(cls: type) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found.update(own_annotations(base))
    return found


def _owner(cls: type, name: str) -> type:
    return next((base for base in cls.__mro__ if name in own_annotations(base)), cls)


def _class_doc(cls: type) -> DocInfo:
    doc = cls.__dict__.get("__doc__")
    # dataclass and namedtuple write their own signature there.
    if not isinstance(doc, str) or doc.startswith(f"{cls.__name__}("):
        return DocInfo()
    return read_docstring(doc)


def _is_typed_dict(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__total__")


def _is_named_tuple(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")
