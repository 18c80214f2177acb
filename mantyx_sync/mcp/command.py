"""Which program a server is, and what it gets to see of us: arguments, environment, folder."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Tuple, Union

from ..checks import kind_of, refusal
from ..errors import cut
from .errors import McpConnectionError

__all__ = ["ServerCommand", "environment", "find_program", "server_command", "start_failure"]

_IS_WINDOWS = sys.platform == "win32"

# What every program needs and nobody keeps a secret in. The rest of our environment, keys of all kinds, stays here.
_PASSED_ON = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
_PASSED_ON_WINDOWS = (
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
)


@dataclass(frozen=True)
class ServerCommand:
    """A program with its arguments, the variables it gets beside the harmless ones of ours, and its folder.

    Arguments and variables may hold credentials: no message and no repr shows them.
    """

    program: str
    args: Tuple[str, ...] = field(repr=False, default=())
    env: Mapping[str, str] = field(repr=False, default_factory=dict)
    cwd: Optional[str] = None

    @property
    def name(self) -> str:
        """What to call the server: the program without its folders."""
        return cut(os.path.basename(self.program.rstrip("/\\")) or self.program, 60)


def server_command(
    command: Union[str, Sequence[str]],
    args: Sequence[str] = (),
    env: Optional[Mapping[str, str]] = None,
    cwd: Union[str, os.PathLike[str], None] = None,
) -> ServerCommand:
    """Check what a caller gave; nothing is looked for on the disk.

    Raises:
        MantyxConfigError: Something is of the wrong type, or holds a character that no argument can hold.
    """
    if isinstance(command, (str, os.PathLike)):
        words = [_word(command, "command")]
    else:
        words = _words(command, "command", "be the name of a program, or a list that begins with it")
    words += _words(args, "args", "be a list of strings")
    if not words or not words[0].strip():
        raise refusal("command", "an empty one", "name a program")
    return ServerCommand(words[0], tuple(words[1:]), _variables(env), None if cwd is None else _word(cwd, "cwd"))


def environment(command: ServerCommand, ours: Mapping[str, str], is_windows: bool = _IS_WINDOWS) -> dict[str, str]:
    """Return the environment of the server's process: a few variables of ours, and those it was given (mcp §3)."""
    found: dict[str, str] = {}
    for name in _PASSED_ON_WINDOWS if is_windows else _PASSED_ON:
        value = ours.get(name)
        if value is not None and not value.startswith("()"):  # a function that bash exported
            found[name] = value
    for name, value in command.env.items():
        found[name.upper() if is_windows else name] = value
    return found


def find_program(command: ServerCommand, path: Optional[str], label: str, is_windows: bool = _IS_WINDOWS) -> str:
    """Return the file to execute, as an absolute path; `path` is the server's own PATH.

    Raises:
        McpConnectionError: There is none that could be executed; the message says why.
    """
    program, cwd = command.program, command.cwd
    if cwd is not None and not os.path.isdir(cwd):
        what = "a file" if os.path.exists(cwd) else "a folder that does not exist"
        raise _not_started(label, f"cwd: got {cut(cwd)!r}, {what}, must be an existing folder")
    if os.path.dirname(program):
        # Such a path is seen from the folder that the server starts in.
        file = os.path.abspath(os.path.join(cwd or "", program))
        if is_windows:
            file = shutil.which(file) or file  # with the extension that it lacks
        problem = _problem_with(file)
    else:
        searched = os.defpath if path is None else path
        # On Windows this finds `npx.cmd` for `npx`, which starting a process would not.
        found = shutil.which(program, path=searched)
        file = os.path.abspath(found) if found else ""
        problem = None if found else _why_not_on_path(program, searched)
    if problem is not None:
        raise _not_started(label, f"command: {_shown(program)} {problem}{_if_a_line(program)}")
    return file


def start_failure(error: OSError, command: ServerCommand, file: str, label: str) -> McpConnectionError:
    """Say why the system did not start a program that looked as if it could be started."""
    reason = os.strerror(error.errno).lower() if error.errno else type(error).__name__
    if error.errno == errno.ENOEXEC:
        reason = "is no program of this system, nor a script whose first line names one (such as #!/bin/sh)"
    elif error.errno == errno.ENOENT and _interpreter_of(file):
        reason = f"is a script for {_interpreter_of(file)!r}, which does not exist"
    elif error.errno == errno.E2BIG:
        reason = "got more arguments and variables than the system allows"
    else:
        reason = f"could not be started: {reason}"
    return _not_started(label, f"command: {_shown(command.program)} {reason}", error)


def _not_started(label: str, reason: str, cause: Optional[BaseException] = None) -> McpConnectionError:
    return McpConnectionError(f"{label} was not started: {reason}", sent=False, cause=cause)


def _shown(program: str) -> str:
    # A whole command line in the place of a program may hold a credential behind its first word.
    first, *more = program.split(None, 1)
    return repr(first if more and not os.path.dirname(program) else cut(program, 200)) + (" …" if more else "")


def _if_a_line(program: str) -> str:
    if len(program.split()) < 2:
        return ""
    return "; a string names the program alone, arguments go into a list: ['npx', '-y', 'some-server']"


def _problem_with(file: str) -> Optional[str]:
    try:
        mode = os.stat(file).st_mode
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be looked at: {os.strerror(error.errno or 0).lower()}"
    if stat.S_ISDIR(mode):
        return "is a folder, must be a program"
    return None if os.access(file, os.X_OK) else "is not executable"


def _why_not_on_path(program: str, path: str) -> str:
    for folder in path.split(os.pathsep):
        file = os.path.join(folder, program)
        if os.path.isfile(file) and not os.access(file, os.X_OK):
            return f"is not executable (it is in {cut(folder)!r})"
    if os.path.isdir(program):
        return "is a folder, must be a program"
    here = ""
    if os.path.isfile(program):
        here = f"; for the file in the current folder, write {os.path.join(os.curdir, program)!r}"
    return f"is not found in PATH{here}"


def _interpreter_of(file: str) -> str:
    try:
        with open(file, "rb") as script:
            first = script.readline(256)
    except OSError:
        return ""
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""


def _words(given: object, where: str, must: str) -> list[str]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise refusal(where, kind_of(given), must)
    return [_word(word, f"{where}[{number}]") for number, word in enumerate(given)]


def _word(given: Any, where: str) -> str:
    word = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(word, str):
        raise refusal(where, kind_of(given), "be a string")
    if "\0" in word:
        raise refusal(where, "a string with a NUL character", "be without one")
    return word


def _variables(env: object) -> dict[str, str]:
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise refusal("env", kind_of(env), "be a mapping of names to strings")
    found = {}
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise refusal("env", f"the name {name!r}" if isinstance(name, str) else kind_of(name), "have names as keys")
        if not isinstance(value, str) or "\0" in value:
            got = "a string with a NUL character" if isinstance(value, str) else kind_of(value)
            raise refusal(f"env[{name!r}]", got, "be a string")
        found[name] = value
    return found
