"""Compile type hints: decide what a hint is and hand it to the module that knows that kind."""

from __future__ import annotations

import collections
import collections.abc
import inspect
from enum import Enum
from typing import (
    Annotated,
    Any,
    Callable,
    Dict,
    Literal,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.hints.annotations import Scope
from mantyx_sync.hints.classes import is_record_class, record_shape
from mantyx_sync.hints.containers import array_shape, is_key_shape, map_shape, tuple_shape, union_shape
from mantyx_sync.hints.foreign import foreign_shape, is_model
from mantyx_sync.hints.metadata import apply_facets, is_field_info, read_facets
from mantyx_sync.hints.scalars import choice_shape, enum_shape, is_scalar, scalar_shape
from mantyx_sync.hints.shape import Convert, Shape, any_shape, null_shape

__all__ = ["Compiler"]

# Qualifiers that say nothing about the value; two of them decide whether a TypedDict's key may be missing.
_QUALIFIERS = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"}

_ARRAYS: Dict[Any, Optional[Callable[[Any], Any]]] = {
    list: None,
    collections.abc.Sequence: None,
    collections.abc.MutableSequence: None,
    collections.abc.Collection: None,
    collections.abc.Iterable: None,
    collections.deque: collections.deque,
    set: set,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
}
_SETS = {set, frozenset, collections.abc.Set, collections.abc.MutableSet}
_MAPS: Dict[Any, Optional[Callable[[Any], Any]]] = {
    dict: None,
    collections.abc.Mapping: None,
    collections.abc.MutableMapping: None,
    collections.OrderedDict: collections.OrderedDict,
}


class Compiler:
    """Compiles the hints of one root and keeps the definitions they share.

    Args:
        label: What the root is, such as `tool 'search'`; messages start with it.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.definitions: Dict[str, Dict[str, Any]] = {}
        self._known: Dict[Any, Shape] = {}

    def compile(self, hint: Any, scope: Scope, where: str) -> Shape:
        """Return the shape of a hint.

        Args:
            hint: The hint; a string or a forward reference is evaluated.
            scope: Where it was written.
            where: What it belongs to, for messages, such as `parameter 'x'`.

        Raises:
            MantyxConfigError: It cannot be evaluated, or has no JSON form.
        """
        hint = self._resolve(hint, scope, where)
        if hint is None or hint is type(None):
            return null_shape()
        if hint is Any or hint is object or hint is inspect.Parameter.empty:
            return any_shape()
        if is_scalar(hint):
            return scalar_shape(hint)
        if isinstance(hint, TypeVar):
            return self._typevar(hint, scope, where)
        supertype = getattr(hint, "__supertype__", None)  # NewType
        if supertype is not None:
            return self.compile(supertype, scope, where)
        if type(hint).__name__ == "TypeAliasType":
            return self._alias(hint, scope, where)
        origin = get_origin(hint)
        if origin is not None:
            return self._generic(hint, origin, scope, where)
        return self._class(hint, scope, where)

    def field(self, hint: Any, scope: Scope, where: str, description: str = "") -> Shape:
        """Return the shape of a named field; a text of its own hint wins over `description`."""
        shape = self.compile(hint, scope, where)
        if description and (
            "description" not in shape.schema or get_origin(self._resolve(hint, scope, where)) is not Annotated
        ):
            schema = {**shape.schema, "description": description}
            return Shape(schema, shape.convert, shape.expected, allows_null=shape.allows_null)
        return shape

    def requirement(self, hint: Any, scope: Scope, where: str) -> Optional[bool]:
        """Return what Required or NotRequired around a hint says, None if neither is there."""
        hint = self._resolve(hint, scope, where)
        while True:
            origin = get_origin(hint)
            name = _special_name(origin)
            if name in ("Required", "NotRequired"):
                return name == "Required"
            if origin is Annotated or name in _QUALIFIERS:
                hint = self._resolve(get_args(hint)[0], scope, where)
            else:
                return None

    def definition(self, key: Any) -> Optional[Shape]:
        """Return the shape of a class that was met before."""
        return self._known.get(key)

    def define(self, key: Any, cls: type, convert: Convert, content: Optional[Dict[str, Any]] = None) -> Shape:
        """Return the shape of a class whose schema is among the definitions.

        Without `content` the place is only reserved, so that the class can contain itself; `fill` completes it.
        """
        long_name = getattr(cls, "__qualname__", cls.__name__)  # an alias has no qualified name
        qualified = f"{cls.__module__}.{long_name}".replace("<locals>", "").replace("..", ".")
        name = self.free_name(cls.__name__, qualified, content)
        self.definitions[name] = content or {}
        shape = Shape({"$ref": f"#/$defs/{name}"}, convert, "an object")
        self._known[key] = shape
        return shape

    def fill(self, shape: Shape, schema: Dict[str, Any]) -> None:
        """Complete a reserved definition."""
        self.definitions[shape.schema["$ref"].rpartition("/")[2]] = schema

    def free_name(self, name: str, qualified: str, content: Optional[Mapping[str, Any]]) -> str:
        """Return a name for a definition that is not taken by another one.

        Args:
            name: The wanted name.
            qualified: A longer one for when it is taken.
            content: What would be stored; the same content may share a name.
        """
        candidates = [_plain_name(name), _plain_name(qualified)]
        number = 2
        while True:
            candidate = candidates.pop(0) if candidates else f"{_plain_name(name)}_{number}"
            taken = self.definitions.get(candidate)
            if taken is None or (content is not None and taken == content):
                return candidate
            number += 0 if candidates else 1

    def refuse(self, where: str, reason: str) -> MantyxConfigError:
        """Return the error for a hint that cannot be used."""
        return MantyxConfigError(f"{self.label}: {where}: {reason}")

    def _resolve(self, hint: Any, scope: Scope, where: str) -> Any:
        try:
            return scope.resolve(hint)
        except RecursionError:  # not the annotation's fault: the hint around it contains itself
            raise
        except Exception as exc:
            text = hint if isinstance(hint, str) else getattr(hint, "__forward_arg__", hint)
            raise self.refuse(
                where,
                f"the annotation {str(text)!r} cannot be evaluated ({type(exc).__name__}: {exc}). "
                "Names in it must exist at run time, not only under TYPE_CHECKING.",
            ) from exc

    def _generic(self, hint: Any, origin: Any, scope: Scope, where: str) -> Shape:
        arguments = get_args(hint)
        if origin is Annotated:
            facets = read_facets(arguments[1:])
            return apply_facets(self.compile(arguments[0], scope, where), facets, f"{self.label}: {where}")
        if origin is Union or _is_pipe(origin):
            return union_shape([self.compile(item, scope, where) for item in arguments])
        if origin is Literal:
            return self._literal(arguments, where)
        if _special_name(origin) in _QUALIFIERS:
            return self.compile(arguments[0], scope, where)
        if type(origin).__name__ == "TypeAliasType":  # a generic alias with its arguments
            parameters = getattr(origin, "__type_params__", ())
            return self._alias(origin, scope.with_typevars(dict(zip(parameters, arguments))), where)
        if origin in _ARRAYS:
            return self._array(origin, self.compile(arguments[0], scope, where) if arguments else any_shape())
        if origin in _MAPS:
            key, item = arguments or (str, Any)
            return self._map(origin, key, item, scope, where)
        if origin is tuple:
            return array_shape(any_shape(), tuple) if hint is Tuple else self._tuple(arguments, scope, where)
        if is_record_class(origin):
            return record_shape(self, origin, arguments, scope, where)
        return self._unsupported(hint, where)

    def _class(self, hint: Any, scope: Scope, where: str) -> Shape:
        if not isinstance(hint, type):
            return scalar_shape(str) if _special_name(hint) == "LiteralString" else self._unsupported(hint, where)
        if is_model(hint):
            return foreign_shape(self, hint, where) or any_shape()
        if issubclass(hint, Enum):
            return enum_shape(hint)
        if hint is tuple:
            return array_shape(any_shape(), tuple)
        if hint in _ARRAYS:
            return self._array(hint, any_shape())
        if hint in _MAPS:
            return map_shape(None, any_shape(), _MAPS[hint])
        if getattr(hint, "__get_pydantic_core_schema__", None) is not None:
            described = foreign_shape(self, hint, where)
            if described is not None:
                return described
        if is_record_class(hint):
            return record_shape(self, hint, (), scope, where)
        return self._unsupported(hint, where)

    def _unsupported(self, hint: Any, where: str) -> Shape:
        if is_field_info(hint):
            raise self.refuse(where, "Field(...) belongs in Annotated[...] or in the place of the default")
        described = foreign_shape(self, hint, where)
        if described is not None:
            return described
        name = hint.__qualname__ if isinstance(hint, type) else str(hint)
        raise self.refuse(
            where,
            f"{name} has no JSON form. Use a dataclass, TypedDict, NamedTuple, Enum or a built-in type; "
            "Any takes whatever the model sends.",
        )

    def _array(self, origin: Any, item: Shape) -> Shape:
        return array_shape(item, _ARRAYS[origin], unique=origin in _SETS)

    def _map(self, origin: Any, key: Any, item: Any, scope: Scope, where: str) -> Shape:
        key_hint = self._resolve(key, scope, where)
        key_shape: Optional[Shape] = None
        if key_hint not in (str, Any, object):
            key_shape = self.compile(key_hint, scope, where)
            if not key_shape.schema:
                key_shape = None
            elif not is_key_shape(key_shape):
                raise self.refuse(where, f"{key_hint} cannot be the key of a JSON object; use a string or an integer")
        return map_shape(key_shape, self.compile(item, scope, where), _MAPS[origin])

    def _tuple(self, arguments: Tuple[Any, ...], scope: Scope, where: str) -> Shape:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return array_shape(self.compile(arguments[0], scope, where), tuple)
        # Python 3.9 and 3.10 write the empty tuple's type as Tuple[()].
        items = () if arguments == ((),) else arguments
        return tuple_shape([self.compile(item, scope, where) for item in items])

    def _literal(self, values: Tuple[Any, ...], where: str) -> Shape:
        choices = []
        for value in values:
            json_value = value.value if isinstance(value, Enum) else value
            if json_value is not None and type(json_value) not in (str, int, bool):
                raise self.refuse(where, f"the literal {value!r} has no JSON form")
            choices.append((json_value, value))
        return choice_shape(choices)

    def _typevar(self, hint: TypeVar, scope: Scope, where: str) -> Shape:
        if hint in scope.typevars:
            return self.compile(scope.typevars[hint], scope, where)
        if hint.__bound__ is not None:
            return self.compile(hint.__bound__, scope, where)
        if hint.__constraints__:
            return union_shape([self.compile(item, scope, where) for item in hint.__constraints__])
        return any_shape()

    def _alias(self, hint: Any, scope: Scope, where: str) -> Shape:
        """Compile a `type X = ...`; one that contains itself becomes a definition."""
        key = (hint, tuple(scope.typevars.items()))
        known = self._known.get(key)
        if known is not None:
            return known
        late: Dict[str, Shape] = {}
        placeholder = self.define(key, hint, lambda value: late["shape"].convert(value))
        name = placeholder.schema["$ref"].rpartition("/")[2]
        try:
            shape = late["shape"] = self.compile(hint.__value__, scope, where)
        except NameError as exc:
            raise self.refuse(where, f"the alias {hint.__name__} cannot be evaluated ({exc})") from exc
        if _refers_to(shape.schema, placeholder.schema["$ref"]):
            self.fill(placeholder, shape.schema)
            return placeholder
        del self.definitions[name]
        self._known[key] = shape
        return shape


def _special_name(origin: Any) -> str:
    """Return the name of a special form such as Required, whether of typing or of typing_extensions."""
    if getattr(origin, "__module__", "typing") not in ("typing", "typing_extensions"):
        return ""
    return str(getattr(origin, "_name", None) or getattr(origin, "__name__", ""))


def _is_pipe(origin: Any) -> bool:
    return getattr(origin, "__name__", "") == "UnionType" and getattr(origin, "__module__", "") == "types"


def _plain_name(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in name)


def _refers_to(schema: Any, reference: str) -> bool:
    if isinstance(schema, dict):
        return schema.get("$ref") == reference or any(_refers_to(item, reference) for item in schema.values())
    return isinstance(schema, list) and any(_refers_to(item, reference) for item in schema)
