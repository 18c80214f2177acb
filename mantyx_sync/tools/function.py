"""Python functions as tools: `@tool` reads hints and docstrings, `define_local_tool` takes it all by hand."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Mapping, Optional, TypeVar, Union, overload

from mantyx_sync import limits
from mantyx_sync.checks import closest
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.hints.docstrings import read_docstring
from mantyx_sync.tools.binding import Binding, FunctionBinding, KeywordBinding, innermost, refuse_async
from mantyx_sync.tools.refs import LocalTool, ToolRef

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R = TypeVar("R", covariant=True)
    S = TypeVar("S")

    class _Typed(Generic[P, R]):
        """Carries the signature of a function to the type checker."""
else:
    # ParamSpec came with Python 3.10. At run time nobody asks for it.
    P = R = None

    class _Typed:
        def __class_getitem__(cls, item):
            return cls


__all__ = ["FunctionTool", "as_tool_ref", "define_local_tool", "tool"]

_INSTANCE_NAMES = {"self", "cls", "mcs", "this"}


@dataclass(frozen=True, eq=False)
class FunctionTool(LocalTool, _Typed[P, R]):
    """A function that is a tool. It can still be called like the function it was made from.

    In a class body it works like a method: `instance.name` is the tool of that instance.
    """

    method_of: str = field(default="", repr=False)  # "instance", "class", or "" for what is no method

    def __post_init__(self) -> None:
        function = innermost(self.execute)
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            self._set(name, getattr(function, name, None))
        self._set("__wrapped__", self.execute)
        super().__post_init__()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it were no tool."""
        if isinstance(self.binding, FunctionBinding) and self.binding.defaults:
            kwargs = {**kwargs, **self._missing_defaults(args, kwargs)}  # type: ignore[assignment]
        result: R = self.execute(*args, **kwargs)
        return result

    @overload
    def __get__(self, instance: None, owner: Any = ...) -> FunctionTool[P, R]: ...

    @overload
    def __get__(self: FunctionTool[Concatenate[S, Q], R], instance: S, owner: Any = ...) -> FunctionTool[Q, R]: ...

    @overload  # a static method reached through an instance
    def __get__(self, instance: object, owner: Any = ...) -> FunctionTool[P, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if self.method_of == "class":
            return self.bound_to(instance if owner is None else owner)
        if instance is None or not self.method_of:
            return self
        return self.bound_to(instance)

    def bound_to(self, instance: object) -> FunctionTool[..., Any]:
        """Return the tool of one instance of the class it was defined in."""
        twin = object.__new__(type(self))
        # The schema and its compiled form are shared; only the function differs.
        twin.__dict__.update(self.__dict__, method_of="", execute=MethodType(self.execute, instance))
        return twin

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`.

        Raises:
            MantyxConfigError: It is a method that belongs to no instance yet.
        """
        if self.method_of:
            raise MantyxConfigError(
                f"{self._label()}: it is a method; take it from an instance, not from the class: instance.{self.name}"
            )
        return super().to_wire()

    def __reduce__(self) -> Any:
        qualified: str = getattr(self, "__qualname__", "")
        try:
            if operator.attrgetter(qualified)(sys.modules[self.__module__]) is self:
                return qualified  # found again by its name, like a function
        except (AttributeError, KeyError):
            pass
        if isinstance(self.execute, MethodType) and isinstance(
            getattr(type(self.execute.__self__), self.execute.__name__, None), FunctionTool
        ):
            return getattr, (self.execute.__self__, self.execute.__name__)
        return super().__reduce__()

    def _label(self) -> str:
        name = getattr(self, "__name__", None) or type(self.execute).__name__
        return f"tool '{self.name}'" if name == self.name else f"tool '{self.name}' (function {name})"

    def _make_binding(self, label: str) -> Binding:
        if isinstance(self.parameters, Mapping):
            return KeywordBinding(self.parameters, self.execute, label)
        if self.parameters is not None:
            raise MantyxConfigError(f"{label}: parameters of a function come from its hints, or from a JSON Schema")
        doc = read_docstring(_docstring(self.execute))
        try:
            return FunctionBinding(self.execute, label, doc, skip_first=bool(self.method_of))
        except RecursionError:
            raise MantyxConfigError(f"{label}: a type hint contains itself without end") from None

    def _missing_defaults(self, args: Any, kwargs: Any) -> Dict[str, Any]:
        """Return what Field-like defaults stand for, of the parameters that were not given."""
        assert isinstance(self.binding, FunctionBinding)
        given = inspect.signature(self.execute).bind_partial(*args, **kwargs).arguments
        return {name: fill() for name, fill in self.binding.defaults.items() if name not in given}


class _Decorator:
    """What `@tool(...)` with options returns."""

    def __init__(self, options: Dict[str, Any]) -> None:
        self._options = options

    def __call__(self, function: Callable[P, R]) -> FunctionTool[P, R]:
        made: FunctionTool[P, R] = _make(function, **self._options)
        return made


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    parameters: Optional[Mapping[str, Any]] = None,
    output_schema: Any = None,
    long_running: bool = False,
    read_only: bool = False,
    retain: bool = False,
    timeout: Optional[float] = None,
    max_concurrency: Optional[int] = None,
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    parameters: Optional[Mapping[str, Any]] = None,
    output_schema: Any = None,
    long_running: bool = False,
    read_only: bool = False,
    retain: bool = False,
    timeout: Optional[float] = None,
    max_concurrency: Optional[int] = None,
) -> _Decorator: ...


def tool(
    function: Optional[Callable[..., Any]] = None,
    /,
    **options: Any,
) -> Union[FunctionTool[..., Any], _Decorator]:
    """Make a function a tool that a model can call, with or without options.

    The schema comes from the type hints, the texts from the docstring (Google, NumPy or reST style) or from
    `Annotated[int, "text"]`. A parameter without a default is required; one with a default may be left out,
    and null counts as left out unless its hint has None. `*args` and `**kwargs` are not offered. A parameter
    annotated with `ToolContext` gets the context of the call. The function stays callable as before.

    Arguments are converted to what the hints say before the function runs: dataclasses, TypedDicts, enums,
    dates and so on. What does not fit is told to the model, and the function does not run.

    Args:
        function: The function, method, or other callable.
        name: What the model calls it; the function's own name unless given.
        description: What the model reads; the docstring up to its first section unless given.
        parameters: A JSON Schema in place of the hints. The arguments are then checked against it and passed by
            keyword as they are.
        output_schema: JSON Schema (or a class with fields) of the result, passed on to the model.
        long_running: Tells the model not to call again while an answer is pending.
        read_only: Calls have no side effects: the platform may send several at once.
        retain: The result is replayed to the model on later turns of the session.
        timeout: Seconds a call may take; None for the run's own limit.
        max_concurrency: How many calls may run at once; None for no limit of its own.

    Raises:
        MantyxConfigError: A hint has no JSON form, the name is not possible, or the function is async. The
            message names the function and the parameter.
        TypeError: There is no such option.
    """
    for option in options:
        if option not in _OPTIONS:
            near = closest(option, _OPTIONS)
            raise TypeError(f"tool: unexpected option {option!r}" + (f"; did you mean {near!r}?" if near else ""))
    return _Decorator(options) if function is None else _make(function, **options)


def define_local_tool(
    *,
    name: str,
    execute: Callable[..., Any],
    description: str = "",
    parameters: Any = None,
    output_schema: Any = None,
    long_running: bool = False,
    read_only: bool = False,
    retain: bool = False,
    timeout: Optional[float] = None,
    max_concurrency: Optional[int] = None,
) -> LocalTool:
    """Make a tool of a handler that takes one argument.

    Args:
        name: What the model calls it: 1 to 64 of `[a-zA-Z0-9_]`.
        execute: The handler. It gets a dict, or an instance of `parameters` if that is a class; and a
            `ToolContext`, if it has a second parameter annotated so.
        description: What the model reads about it.
        parameters: A JSON Schema of an object, a pydantic model, dataclass or TypedDict, or None for any object.
            With a JSON Schema the handler gets what the model sent: a `default` in it is not filled in, and
            1.0 stays 1.0 where it asks for an integer.
        output_schema: JSON Schema (or a class with fields) of the result, passed on to the model.
        long_running: Tells the model not to call again while an answer is pending.
        read_only: Calls have no side effects: the platform may send several at once.
        retain: The result is replayed to the model on later turns of the session.
        timeout: Seconds a call may take; None for the run's own limit.
        max_concurrency: How many calls may run at once; None for no limit of its own.

    Raises:
        MantyxConfigError: Something of this cannot be used.
    """
    return LocalTool(
        name=name,
        description=description or "",
        parameters=parameters,
        output_schema=output_schema,
        long_running=bool(long_running),
        read_only=bool(read_only),
        retain=bool(retain),
        execute=execute,
        timeout=timeout,
        max_concurrency=max_concurrency,
    )


def as_tool_ref(value: object) -> ToolRef:
    """Return what can stand in `tools=` for a value: a ref as it is, a plain function as a tool.

    Raises:
        MantyxConfigError: It is neither, or a function that cannot be a tool.
    """
    if isinstance(value, MethodType) and isinstance(value.__func__, FunctionTool):
        return value.__func__.bound_to(value.__self__)  # a class method of Python 3.13
    if isinstance(value, FunctionTool) and value.method_of:
        value.to_wire()  # says what to pass instead
    if isinstance(value, type):
        raise MantyxConfigError(f"tools: {value.__qualname__} is a class; pass a function or an instance")
    if isinstance(value, ToolRef):
        return value
    if callable(value):
        return as_tool_ref(_make(value))
    raise MantyxConfigError(f"tools: a {type(value).__name__} is no tool; pass a function or a tool ref")


def _make(
    function: Any,
    *,
    name: Optional[str] = None,
    description: Optional[str] = None,
    parameters: Optional[Mapping[str, Any]] = None,
    output_schema: Any = None,
    long_running: bool = False,
    read_only: bool = False,
    retain: bool = False,
    timeout: Optional[float] = None,
    max_concurrency: Optional[int] = None,
) -> FunctionTool[Any, Any]:
    method_of = "class" if isinstance(function, classmethod) else ""
    if isinstance(function, (staticmethod, classmethod)):
        function = function.__func__
    elif _is_method_in_class_body(function):
        method_of = "instance"
    if isinstance(function, LocalTool):
        raise MantyxConfigError(f"tool '{function.name}' is a tool already")
    if not callable(function) or isinstance(function, type):
        raise MantyxConfigError(f"@tool needs a function, got {function!r}. With options: @tool(name='...')")
    if name is None:
        name = str(getattr(innermost(function), "__name__", ""))
        if name == "__call__":
            name = type(function).__name__
        if limits.TOOL_NAME.fullmatch(name) is None:
            raise MantyxConfigError(
                f"the function's name {name!r} cannot be a tool's name (1 to 64 of [a-zA-Z0-9_]); give name="
            )
    if description is None:
        description = read_docstring(_docstring(function)).description
    refuse_async(function, f"tool '{name}'")
    return FunctionTool(
        name=name,
        description=description,
        parameters=parameters,
        output_schema=output_schema,
        long_running=bool(long_running),
        read_only=bool(read_only),
        retain=bool(retain),
        execute=function,
        timeout=timeout,
        max_concurrency=max_concurrency,
        method_of=method_of,
    )


_OPTIONS = tuple(inspect.signature(_make).parameters)[1:]


def _is_method_in_class_body(function: Any) -> bool:
    """Tell whether a plain function was written in the body of a class and takes the instance first."""
    if not inspect.isfunction(function):
        return False
    inner = innermost(function)
    around = getattr(inner, "__qualname__", "").rpartition(".")[0]
    if not around or around.endswith("<locals>") or not inspect.isfunction(inner):
        return False
    code = inner.__code__
    return code.co_argcount > 0 and code.co_varnames[0] in _INSTANCE_NAMES


def _docstring(function: Any) -> Optional[str]:
    """Return the docstring somebody wrote for a callable, not the one of its type."""
    inner = innermost(function)
    doc = getattr(inner, "__doc__", None)
    if not doc and not inspect.isroutine(function) and not isinstance(function, functools.partial):
        doc = type(function).__doc__
    return doc if isinstance(doc, str) else None
