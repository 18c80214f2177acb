"""A process and everything it started: asked whether it is there, signalled, reaped. Nothing here waits long."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any, Callable, Mapping, Optional, Sequence

__all__ = ["ProcessGroup"]

IS_WINDOWS = sys.platform == "win32"

_REAP_S = 5.0
_TASKKILL_S = 10.0


class ProcessGroup:
    """A process in a session of its own: Ctrl-C in our terminal does not reach it, and its children are found."""

    def __init__(
        self,
        argv: Sequence[str],
        file: str,
        *,
        pipes: Sequence[Optional[int]],
        env: Mapping[str, str],
        cwd: Optional[str],
    ) -> None:
        """Start `file`; `pipes` become its standard input, output and error (`None`: it shares ours).

        Nothing else of ours is passed on: no other descriptor and no variable that is not in `env`.
        """
        apart: dict[str, Any] = {"start_new_session": True, "executable": file}
        if IS_WINDOWS:
            flags = ("CREATE_NEW_PROCESS_GROUP", "CREATE_NO_WINDOW")
            apart = {"creationflags": sum(getattr(subprocess, flag, 0) for flag in flags)}
            argv = [file, *argv[1:]]  # a .cmd file is started through its name alone
        # Found anew each time: gevent may have replaced it since.
        start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
        self._popen = start(
            argv, stdin=pipes[0], stdout=pipes[1], stderr=pipes[2], cwd=cwd, env=env, close_fds=True, **apart
        )
        self.pid = self._popen.pid
        self._is_code_lost = False

    def has_exited(self) -> bool:
        """Tell whether the process itself has ended, its children left out."""
        if self._popen.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._popen.poll() is not None
        # Not reaped by that: as long as it is a zombie, its number and its group's are nobody else's.
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else reaped it: gevent, which knows the code, or a program's own handler
            self._is_code_lost = type(self._popen).__module__ == "subprocess"
            return True

    def reap(self) -> Optional[int]:
        """Free what the system keeps of a process that has exited.

        Returns:
            Its exit code, negative if a signal ended it; `None` if that is not known.
        """
        if self._popen.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_REAP_S)
        return None if self._is_code_lost else self._popen.returncode

    def is_gone(self) -> bool:
        """Tell whether nothing of the group is left; a process that has exited is reaped by that."""
        if not self.has_exited():
            return False
        self.reap()
        if IS_WINDOWS:
            return True
        try:
            os.killpg(self.pid, 0)
        except OSError:  # nobody is left; or, as macOS says it, nobody that could be signalled
            return True
        # What is left may be dead, and waiting for a first process of the system that is in no hurry, as in containers.
        return not _has_living_member(self.pid)

    def terminate(self) -> None:
        """Ask every process of the group to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every process of the group."""
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def forget(self) -> None:
        """Let go of it in a child of a fork, whose system call about it would fail. Takes no lock."""
        self._popen.returncode = 0

    def _signal(self, number: int) -> None:
        if not IS_WINDOWS:
            with contextlib.suppress(OSError):  # nobody is left
                os.killpg(self.pid, number)
        elif self._popen.poll() is None:
            # Windows has no groups to signal; this ends a process and its children, without asking them.
            tool = os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "taskkill.exe")
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    [tool, "/PID", str(self.pid), "/T", "/F"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_TASKKILL_S,
                    check=False,
                )
            with contextlib.suppress(OSError):
                self._popen.kill()


def _has_living_member(group: int) -> bool:
    """Tell whether a process of the group is more than a zombie; where the system does not tell, one is."""
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return True
    for number in numbers:
        try:
            with open(f"/proc/{number}/stat", "rb") as stat:
                state, _, its_group = stat.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):  # it ended meanwhile
            continue
        if int(its_group) == group and state not in (b"Z", b"X"):
            return True
    return not numbers
