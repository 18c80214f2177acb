"""From the model's arguments to the call of a handler: three ways to check and pass them.

- `FunctionBinding`: a function's own parameters, by its signature and type hints.
- `ModelBinding`: one argument, an instance of a class (a pydantic model, dataclass, TypedDict).
- `SchemaBinding`: one argument, the object as it came, checked against a JSON Schema.
"""

from __future__ import annotations

import abc
import copy
import functools
import inspect
from types import MethodType
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, get_args

from mantyx_sync.errors import MantyxConfigError, ToolInputError
from mantyx_sync.hints import CompiledType, compile_type, inline_root
from mantyx_sync.hints.annotations import Scope, function_scope, signature
from mantyx_sync.hints.compiler import Compiler
from mantyx_sync.hints.docstrings import DocInfo
from mantyx_sync.hints.metadata import NO_DEFAULT, apply_facets, is_field_info, read_default, read_facets
from mantyx_sync.hints.record import Field, Record, object_schema, with_default
from mantyx_sync.mismatch import TOO_DEEP, Mismatch, join
from mantyx_sync.schema import SchemaChecker
from mantyx_sync.tools.context import ToolContext

__all__ = [
    "Binding",
    "FunctionBinding",
    "KeywordBinding",
    "ModelBinding",
    "SchemaBinding",
    "binding_for",
    "innermost",
    "refuse_async",
    "too_deep",
]

_Call = Tuple[Tuple[Any, ...], Dict[str, Any]]
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Binding(abc.ABC):
    """Checks arguments and lays them out for a call.

    Attributes:
        schema: The JSON Schema of the arguments; None for "any object".
        source: What the binding was made from, to make it again after pickling.
    """

    schema: Optional[Dict[str, Any]] = None
    source: Any = None

    @abc.abstractmethod
    def bind(self, arguments: Mapping[str, Any], context: Optional[ToolContext], tool_name: str) -> _Call:
        """Return positional and keyword arguments for the handler.

        A handler that asks for a context gets a fresh one if there is none.

        Raises:
            ToolInputError: The arguments do not fit.
        """


class SchemaBinding(Binding):
    """Passes the object as it came, after checking it against a JSON Schema."""

    _first_free = 1  # the first parameter of the handler takes the object

    def __init__(self, schema: Optional[Mapping[str, Any]], execute: Callable[..., Any], label: str) -> None:
        self._checker = None if schema is None else SchemaChecker(schema, label=label)
        self.schema = self.source = None if self._checker is None else self._checker.schema
        if self.schema is not None and self.schema.get("type", "object") != "object":
            raise MantyxConfigError(f"{label}: parameters must be an object schema (type: object), as wire §3.1 asks")
        self._context_name = _context_parameter(execute, first=self._first_free)

    def bind(self, arguments: Mapping[str, Any], context: Optional[ToolContext], tool_name: str) -> _Call:
        self.check(arguments, tool_name)
        # A copy: a handler that pops from it must not change the event it came with.
        return (dict(arguments),), _context_argument(self._context_name, context, tool_name)

    def check(self, arguments: Mapping[str, Any], tool_name: str) -> None:
        """Check the arguments against the schema."""
        problem = None if self._checker is None else self._checker.problem(arguments)
        if problem is not None:
            raise _do_not_match(tool_name, problem)


class KeywordBinding(SchemaBinding):
    """Passes the properties of the object by keyword, for a function whose schema was given by hand."""

    _first_free = 0

    def bind(self, arguments: Mapping[str, Any], context: Optional[ToolContext], tool_name: str) -> _Call:
        self.check(arguments, tool_name)
        return (), {**arguments, **_context_argument(self._context_name, context, tool_name)}


class ModelBinding(Binding):
    """Passes an instance of a class."""

    def __init__(self, model: Any, execute: Callable[..., Any], label: str) -> None:
        self._type: CompiledType = compile_type(model, label=f"{label}: parameters")
        self.schema = self._type.schema
        self.source = model
        if self.schema.get("type") != "object":
            raise MantyxConfigError(f"{label}: parameters must be a class with fields, or a JSON Schema of an object")
        self._context_name = _context_parameter(execute, first=1)

    def bind(self, arguments: Mapping[str, Any], context: Optional[ToolContext], tool_name: str) -> _Call:
        try:
            value = self._type.parse(dict(arguments))
        except Mismatch as exc:
            raise _do_not_match(tool_name, exc.sentence()) from None
        return (value,), _context_argument(self._context_name, context, tool_name)


class FunctionBinding(Binding):
    """Passes the arguments as a function's own parameters, converted to what its hints ask for.

    `*args` and `**kwargs` are not offered to the model. A function with `**kwargs` tolerates names it does not
    know (they are dropped: the model must not reach parameters the schema does not show); others refuse them.

    Args:
        function: The function, bound method, partial or other callable.
        label: What it is, for messages.
        doc: Its docstring, for the texts of its parameters.
        skip_first: Whether the first parameter is the instance of a method.
    """

    def __init__(self, function: Callable[..., Any], label: str, doc: DocInfo, *, skip_first: bool = False) -> None:
        self._context_names: List[str] = []
        self.defaults: Dict[str, Callable[[], Any]] = {}  # what stands in for Field-like defaults
        parameters = _parameters(function, label, skip_first=skip_first)
        scope = function_scope(innermost(function))
        compiler = Compiler(label)
        fields: List[Field] = []
        is_open = False
        positional: List[Tuple[str, Any]] = []
        for parameter in parameters:
            if parameter.kind in _VARIADIC:
                is_open = is_open or parameter.kind is inspect.Parameter.VAR_KEYWORD
            elif _wants_context(parameter.annotation, scope):
                self._context_names.append(parameter.name)
            else:
                fields.append(self._field(parameter, compiler, scope, doc))
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append((parameter.name, parameter.default))
        self._positional = positional
        self._record = Record(fields, dict, is_open=is_open)
        schema = object_schema(fields, is_open=is_open)
        self.schema = inline_root(schema, compiler.definitions)

    def bind(self, arguments: Mapping[str, Any], context: Optional[ToolContext], tool_name: str) -> _Call:
        try:
            values = self._record.values(arguments)
        except Mismatch as exc:
            raise _do_not_match(tool_name, self._all_problems(arguments, exc)) from None
        for name in self._context_names:
            values[name] = context or ToolContext(name=tool_name)
        if not self._positional:
            return (), values
        return self._split(values), values

    def _split(self, values: Dict[str, Any]) -> Tuple[Any, ...]:
        """Take the positional-only arguments out of the values, with the defaults of those left out."""
        return tuple(values.pop(name) if name in values else default for name, default in self._positional)

    def _all_problems(self, arguments: Mapping[str, Any], first: Mismatch) -> str:
        """Name everything that is wrong, so that the model can put it right in one go."""
        try:
            return join(self._record.problems(arguments)) or first.sentence()
        except RecursionError:
            return first.sentence()

    def _field(self, parameter: inspect.Parameter, compiler: Compiler, scope: Scope, doc: DocInfo) -> Field:
        where = f"parameter '{parameter.name}'"
        shape = compiler.field(parameter.annotation, scope, where, doc.parameters.get(parameter.name, ""))
        default: Any = parameter.default
        fill: Optional[Callable[[], Any]] = None
        if default is inspect.Parameter.empty:
            default = NO_DEFAULT
        elif is_field_info(default):
            shape = apply_facets(shape, read_facets([default]), f"{compiler.label}: {where}")
            default, fill = read_default(default)
            if fill is None and default is not NO_DEFAULT:
                fill = _constant(default)
            if fill is not None:
                self.defaults[parameter.name] = fill
        elif type(default) in (list, dict, set):
            fill = _constant(default)
        required = default is NO_DEFAULT and fill is None
        return Field(parameter.name, with_default(shape, default), required, fill)


def binding_for(parameters: Any, execute: Callable[..., Any], label: str) -> Binding:
    """Return the binding of a handler that takes one argument.

    Args:
        parameters: A JSON Schema, a class with fields, or None for any object.
        execute: The handler.
        label: What it belongs to, for messages.

    Raises:
        MantyxConfigError: `parameters` is something else, or has no JSON form.
    """
    if parameters is None or isinstance(parameters, Mapping):
        return SchemaBinding(parameters, execute, label)
    return ModelBinding(parameters, execute, label)


def refuse_async(function: Callable[..., Any], label: str) -> None:
    """Refuse a function that would have to be awaited.

    Raises:
        MantyxConfigError: It is a coroutine function or an asynchronous generator.
    """
    inner = innermost(function)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise MantyxConfigError(
            f"{label}: it is an async function, but handlers run in threads. Make it a plain function, or call it "
            "from one with asyncio.run()."
        )


def _parameters(function: Callable[..., Any], label: str, *, skip_first: bool) -> List[inspect.Parameter]:
    try:
        found = list(signature(function).parameters.values())
    except (TypeError, ValueError) as exc:
        raise MantyxConfigError(
            f"{label}: its signature cannot be read ({exc}). Wrap it in a function with named parameters, or give "
            "parameters= a JSON Schema."
        ) from exc
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    return [parameter for parameter in found[1 if skip_first else 0 :] if parameter.name not in fixed]


def innermost(function: Any) -> Any:
    """Return the plain function behind methods, partials, decorators and callable objects."""
    for _ in range(100):
        if isinstance(function, (MethodType, staticmethod, classmethod)):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function) and inspect.isfunction(_call_method(function)):
            function = _call_method(function)
        else:
            break
    return function


def _call_method(function: Any) -> Any:
    return inspect.getattr_static(type(function), "__call__", None)


def _wants_context(annotation: Any, scope: Scope) -> bool:
    try:
        hint = scope.resolve(annotation)
    except Exception:  # the parameter's own compilation reports it
        return False
    return hint is ToolContext or ToolContext in get_args(hint)


def _context_parameter(execute: Callable[..., Any], *, first: int) -> Optional[str]:
    """Return the name of the handler's parameter that takes the context, if there is one from `first` on."""
    try:
        parameters = list(signature(execute).parameters.values())
    except (TypeError, ValueError):
        return None
    scope = function_scope(innermost(execute))
    return next((item.name for item in parameters[first:] if _wants_context(item.annotation, scope)), None)


def _context_argument(name: Optional[str], context: Optional[ToolContext], tool_name: str) -> Dict[str, Any]:
    return {} if name is None else {name: context or ToolContext(name=tool_name)}


def _constant(value: Any) -> Callable[[], Any]:
    """Return a maker of copies: a default that is changed in one call must not leak into the next."""
    if type(value) in (list, dict, set):
        return lambda: copy.deepcopy(value)
    return lambda: value


def _do_not_match(tool_name: str, problem: str) -> ToolInputError:
    return ToolInputError(f"tool '{tool_name}': arguments do not match its schema: {problem}")


def too_deep(tool_name: str) -> ToolInputError:
    """Return the error for arguments that overflow the stack."""
    return ToolInputError(f"tool '{tool_name}': arguments are {TOO_DEEP}")
