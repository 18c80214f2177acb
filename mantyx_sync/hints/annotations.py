"""Find what annotations mean: strings, forward references, names that live in an enclosing function.

`typing.get_type_hints` gives up as a whole at the first name it does not know, does not look into enclosing
functions, and on Python 3.9 cannot read `str | None`. Here every annotation is evaluated by itself, so that an
error can name the parameter it belongs to.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from types import CodeType, FrameType
from typing import Any, Callable, Dict, ForwardRef, List, Mapping, Optional, Union

__all__ = ["Scope", "caller_scope", "class_scope", "function_scope", "own_annotations", "signature"]

_PACKAGE = __name__.split(".")[0]
_LATE_ANNOTATIONS = sys.version_info >= (3, 14)


class Scope:
    """The names an annotation may use, innermost first, and what type variables stand for."""

    def __init__(
        self,
        names: List[Mapping[str, Any]],
        module: str,
        enclosing: Mapping[str, Any],
        typevars: Optional[Mapping[Any, Any]] = None,
    ) -> None:
        self._names = names
        self.module = module
        self.enclosing = enclosing
        self.typevars = typevars or {}

    def with_typevars(self, typevars: Mapping[Any, Any]) -> Scope:
        """Return the scope with type variables bound, as in the fields of `Box[int]`."""
        return Scope(self._names, self.module, self.enclosing, {**self.typevars, **typevars})

    def evaluate(self, text: str) -> Any:
        """Evaluate the text of an annotation.

        Raises:
            Exception: Whatever the text raises; mostly NameError.
        """
        return eval(_compiled(text), {"__builtins__": builtins, "__mantyx_union__": Union}, _Names(self._names))

    def resolve(self, hint: Any) -> Any:
        """Return what a hint stands for if it is a string or a forward reference, else the hint itself."""
        seen = 0
        while isinstance(hint, (str, ForwardRef)) and seen < 10:
            hint = self.evaluate(hint if isinstance(hint, str) else hint.__forward_arg__)
            seen += 1
        return hint


class _Names(Dict[str, Any]):
    """Local names for `eval`, looked up in several mappings in turn."""

    def __init__(self, layers: List[Mapping[str, Any]]) -> None:
        super().__init__()
        self._layers = layers

    def __missing__(self, name: str) -> Any:
        for layer in self._layers:
            if name in layer:
                return layer[name]
        raise KeyError(name)


def function_scope(function: Callable[..., Any]) -> Scope:
    """Return the scope of a function's annotations.

    The variables of the functions and classes around it are read from the frames that are still running, which
    is where a decorator is called.
    """
    module_names: Mapping[str, Any] = getattr(function, "__globals__", {})
    enclosing = _enclosing(getattr(function, "__qualname__", ""), module_names)
    code: Optional[CodeType] = getattr(function, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or ()):
        try:
            enclosing[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    parameters = {item.__name__: item for item in getattr(function, "__type_params__", ())}
    return Scope([parameters, enclosing, module_names], getattr(function, "__module__", None) or "", enclosing)


def class_scope(cls: type, outer: Scope) -> Scope:
    """Return the scope of a class's annotations; a class local to a function sees what `outer` sees there."""
    module = cls.__module__
    module_names: Mapping[str, Any] = getattr(sys.modules.get(module), "__dict__", {})
    enclosing = dict(outer.enclosing) if module == outer.module else {}
    parameters = {item.__name__: item for item in getattr(cls, "__type_params__", ())}
    local: Mapping[str, Any] = {}
    if "<locals>" in cls.__qualname__:
        enclosing.update(_enclosing(cls.__qualname__, module_names))
        local = enclosing
    # The class body comes after the module: under postponed evaluation `date: date = None` means the module's.
    names = [parameters, local, module_names, {cls.__name__: cls}, vars(cls), enclosing]
    return Scope(names, module, enclosing)


def caller_scope() -> Scope:
    """Return the scope of the code that called into this package."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == _PACKAGE:
        frame = frame.f_back
    if frame is None:
        return Scope([], "", {})
    variables = dict(frame.f_locals)
    return Scope([variables, frame.f_globals], frame.f_globals.get("__name__", ""), variables)


def own_annotations(cls: type) -> Mapping[str, Any]:
    """Return the annotations written in this very class."""
    if _LATE_ANNOTATIONS:
        return _late_annotations(cls)
    found = vars(cls).get("__annotations__", {})
    return found if isinstance(found, Mapping) else {}


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature with annotations that may still be strings or forward references.

    Raises:
        ValueError: It has no signature that could be read (some builtins).
        TypeError: It is no callable.
    """
    if _LATE_ANNOTATIONS:
        import annotationlib  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore[reportMissingImports]

        forward = annotationlib.Format.FORWARDREF
        return inspect.signature(function, annotation_format=forward)  # type: ignore[call-arg,unused-ignore]
    return inspect.signature(function)


def _late_annotations(cls: type) -> Mapping[str, Any]:
    import annotationlib  # pyright: ignore[reportMissingImports]

    found: Mapping[str, Any] = annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return found


def _enclosing(qualname: str, module_names: object) -> Dict[str, Any]:
    """Return the variables of the functions and classes around a name, as far as their frames still run."""
    around = set(qualname.split(".")[:-1]) - {"<locals>", ""}
    layers: List[Mapping[str, Any]] = []
    frame: Optional[FrameType] = sys._getframe(1) if around else None
    while frame is not None:
        if frame.f_globals is module_names and frame.f_code.co_name in around:
            layers.append(frame.f_locals)
        frame = frame.f_back
    variables: Dict[str, Any] = {}
    for layer in reversed(layers):
        variables.update(layer)
    return variables


@functools.lru_cache(maxsize=512)
def _compiled(text: str) -> CodeType:
    tree = ast.parse(text.strip(), "<annotation>", "eval")
    if sys.version_info < (3, 10):
        tree = ast.fix_missing_locations(_UnionRewriter().visit(tree))
    return compile(tree, "<annotation>", "eval")


class _UnionRewriter(ast.NodeTransformer):
    """Rewrite `X | Y` to a Union, which is what it means; Python 3.9 has no such operator on types."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitOr):
            return node
        members = ast.Tuple(elts=[node.left, node.right], ctx=ast.Load())
        union = ast.Name(id="__mantyx_union__", ctx=ast.Load())
        return ast.Subscript(value=union, slice=members, ctx=ast.Load())
