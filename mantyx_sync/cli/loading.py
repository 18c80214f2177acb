"""Objects of the caller's, named on the command line as `module:name`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from ..checks import closest

__all__ = ["NotKept", "Unusable", "load"]


class Unusable(Exception):
    """What was given on the command line cannot be used; the text says why."""


class NotKept(Exception):
    """It was done, but what was to be kept of it cannot be written; the text says why."""


def load(place: str, default_name: str) -> Any:
    """Import a module, looked for in the working directory first, and return what is named in it.

    Args:
        place: `package.module:name`; the name may have dots.
        default_name: What is taken where no name is given.

    Raises:
        Unusable: There is no such module or name, or importing the module fails.
    """
    module_name, _, name = place.partition(":")
    name = name or default_name
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise Unusable(f"{place!r} is not of the form module:name{_file_hint(module_name)}")
    value: Any = _import(module_name)
    for part in name.split("."):
        if not _has(value, part, module_name):
            known = [word for word in vars(value) if not word.startswith("_")] if hasattr(value, "__dict__") else []
            near = closest(part, known)
            raise Unusable(f"module {module_name!r} has no {name!r}" + (f"; did you mean {near!r}?" if near else ""))
        value = getattr(value, part)
    return value


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = _file_hint(name)
            raise Unusable(f"there is no module {name!r} in {here} or among what is installed{hint}") from None
        raise Unusable(_importing_failed(name, error)) from None
    except Exception as error:
        raise Unusable(_importing_failed(name, error)) from None
    except SystemExit:  # a program, which does its work when it is imported
        hint = 'put what it does as a program behind: if __name__ == "__main__"'
        raise Unusable(f"importing {name!r} ended with sys.exit(); {hint}") from None


def _has(value: Any, name: str, module_name: str) -> bool:
    try:
        return hasattr(value, name)
    except Exception as error:  # a module may have a __getattr__ of its own
        raise Unusable(f"module {module_name!r}: taking {name!r} failed with {type(error).__name__}: {error}") from None


def _file_hint(name: str) -> str:
    return "; give the module's name, not its file" if name.endswith(".py") or os.sep in name else ""


def _importing_failed(name: str, error: Exception) -> str:
    """Say where in the caller's code importing failed."""
    if isinstance(error, SyntaxError):
        return f"importing {name!r} failed: {error.filename}, line {error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    theirs = [frame for frame in frames if os.sep + "mantyx_sync" + os.sep not in frame.filename]
    place = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    text = f": {error}" if str(error) else ""
    return f"importing {name!r} failed with {type(error).__name__}{text}{place}"
