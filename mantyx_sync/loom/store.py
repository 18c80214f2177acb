"""What a worker keeps on disk of its tasks: the claim id before the claim, tool calls before they are made, the result.

One file a task, a line of JSON for each thing that became known, readable by its owner alone. It is to survive the
death of the worker, however it dies, so each line is handed to the system before what it tells of is sent. It need not
survive the death of the machine: the service is on it, and dies with its tasks. A lock tells which process is at a
task; the system takes it back when the process dies. An owner token is never stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional, Union

from ..errors import MantyxConfigError

__all__ = ["Journal", "KeptCall", "TaskKey", "TaskStore"]

VERSION = 1


class TaskKey(NamedTuple):
    """Which task. Runs and calls of two services may have the same ids."""

    instance_id: str
    run_id: str
    call_id: str


@dataclass
class KeptCall:
    """A tool call of a task. `is_spent` when its id can be of no use again, `output` what came back."""

    tool_call_id: str
    tool_id: str
    input: Any
    is_answered: bool = False
    is_spent: bool = False
    output: Any = None


@dataclass
class Journal:
    """What is known of one task. Each `note_…` is on disk when it returns."""

    path: Path
    key: TaskKey
    claim_id: str
    calls: list[KeptCall] = field(default_factory=list)
    ending: Optional[str] = None
    """`complete` or `fail`, once decided: the same end is handed in again, nothing is done anew."""
    value: Any = None
    """The result, or the message of the failure."""

    def note_call(self, tool_id: str, given: Any) -> KeptCall:
        """Note a tool call that is about to be made, under a new id."""
        call = KeptCall(str(uuid.uuid4()), tool_id, given)
        self._write({"call": call.tool_call_id, "tool": tool_id, "input": given})
        self.calls.append(call)
        return call

    def note_output(self, call: KeptCall, output: Any) -> None:
        """Note what a call returned."""
        self._write({"answered": call.tool_call_id, "output": output})
        call.is_answered, call.output = True, output

    def note_spent(self, call: KeptCall) -> None:
        """Note that a call was refused: its id is spent."""
        self._write({"spent": call.tool_call_id})
        call.is_spent = True

    def note_ending(self, ending: str, value: Any) -> None:
        """Note how the task is to end."""
        self._write({"ending": ending, "value": value})
        self.ending, self.value = ending, value

    def _write(self, line: dict[str, Any]) -> None:
        _append(self.path, line)

    def _read(self, line: dict[str, Any]) -> None:
        if "call" in line:
            self.calls.append(KeptCall(line["call"], line["tool"], line["input"]))
        elif "answered" in line:
            call = self._call(line["answered"])
            call.is_answered, call.output = True, line["output"]
        elif "spent" in line:
            self._call(line["spent"]).is_spent = True
        else:
            self.ending, self.value = line["ending"], line["value"]

    def _call(self, tool_call_id: str) -> KeptCall:
        return next(call for call in self.calls if call.tool_call_id == tool_call_id)


class TaskStore:
    """A folder of journals. Several processes may share it, for several services; on Windows one at a time.

    It is empty while no task is at hand. What a task leaves there whose worker and service both died is removed after
    some weeks.
    """

    def __init__(self, folder: Union[str, os.PathLike[str], None] = None) -> None:
        """Take the folder; it is made at first use.

        Args:
            folder: `None` is `mantyx-sync/loom` in the user's state folder (`XDG_STATE_HOME`, else `~/.local/state`).
        """
        if folder is None:
            state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
            folder = os.path.join(state, "mantyx-sync", "loom")
        self.folder = Path(folder)

    @contextlib.contextmanager
    def at_work(self, key: TaskKey) -> Iterator[bool]:
        """Hold a task's lock; yields false if another process, or another thread, has it.

        Raises:
            MantyxConfigError: The folder cannot be used.
        """
        path = self._path(key, "lock")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise MantyxConfigError(f"store: {self.folder} cannot be used ({error.strerror})") from None
        is_ours = _lock(handle, path)
        try:
            yield is_ours
        finally:
            if is_ours and not self.has(key):
                _remove(path)  # while it is held: whoever opened it before sees that it is another file by now
            os.close(handle)

    def has(self, key: TaskKey) -> bool:
        """Tell whether there is a journal of a task."""
        return self._path(key, "jsonl").exists()

    def begin(self, key: TaskKey) -> Journal:
        """Begin the journal of a task, with a new claim id; it is on disk when this returns."""
        journal = Journal(self._path(key, "jsonl"), key, str(uuid.uuid4()))
        head = {"version": VERSION, "instanceId": key.instance_id, "runId": key.run_id, "callId": key.call_id}
        _append(journal.path, {**head, "claimId": journal.claim_id})
        return journal

    def load(self, key: TaskKey) -> Journal | None:
        """Return the journal of a task, `None` if there is none. For whoever holds the task's lock.

        Raises:
            MantyxConfigError: The file is not what this class writes: guessing could repeat an effect.
        """
        path = self._path(key, "jsonl")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # a line that was being written tells of something that was not sent
            os.truncate(path, len(whole))
        if not whole:
            _remove(path)
            return None
        try:
            head, *lines = [json.loads(line) for line in whole.splitlines()]
            if head["version"] != VERSION or _key(head) != key:
                raise ValueError
            journal = Journal(path, key, head["claimId"])
            for line in lines:
                journal._read(line)
        except (ValueError, KeyError, TypeError, StopIteration, AttributeError):
            raise MantyxConfigError(f"{path}: is not the journal of a task as this version writes it") from None
        return journal

    def forget(self, key: TaskKey) -> None:
        """Remove the journal of a task that is over."""
        _remove(self._path(key, "jsonl"))

    def left(self) -> list[tuple[TaskKey, float]]:
        """Return the tasks that have a journal, each with the seconds since it was last written to."""
        found = []
        for path in self.folder.glob("*.jsonl"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), path.open("rb") as file:
                found.append((_key(json.loads(file.readline())), time.time() - path.stat().st_mtime))
        return found

    def _path(self, key: TaskKey, kind: str) -> Path:
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return self.folder / f"{digest}.{kind}"


def _key(head: Any) -> TaskKey:
    return TaskKey(head["instanceId"], head["runId"], head["callId"])


def _append(path: Path, line: dict[str, Any]) -> None:
    data = json.dumps(line).encode() + b"\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        size = os.fstat(handle).st_size
        try:
            while data:
                data = data[os.write(handle, data) :]
        except OSError:
            os.ftruncate(handle, size)  # half a line would spoil the next one
            raise
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _lock(handle: int, path: Path) -> bool:
    if sys.platform == "win32":  # one worker a store, as the documentation of `TaskStore` says
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(handle).st_ino == os.stat(path).st_ino  # else it was removed meanwhile, by who held it
    except OSError:
        return False
