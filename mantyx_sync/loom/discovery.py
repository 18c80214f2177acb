"""Finding the service of a project: its folder, its files, and every reason not to trust them (loom §1.2)."""

from __future__ import annotations

import json
import os
import re
import stat
import uuid
from dataclasses import field
from pathlib import Path
from typing import Any, Union

from ..reprs import dataclass
from .errors import LoomDiscoveryError

__all__ = ["Discovered", "discover", "find_project"]

MARKER = "intloom.yaml"
FOLDER = ".intloom"
MAX_FILE_BYTES = 64 * 1024

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_LOG_FILE = re.compile(r"LOG-\d+T\d+Z\.jsonl")
_STORAGE = ("file", "sqlite")


@dataclass(frozen=True)
class Discovered:
    """Where a project's service is. `url` is built from the port, never taken from the service's own file."""

    project_root: Path
    port: int
    token: str = field(repr=False)
    instance_id: str
    pid: int

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self.port}"

    def check_status(self, body: Any) -> None:
        """Compare what `GET /_status` answered with the service's file.

        Raises:
            LoomDiscoveryError: It is another service than the one the files tell of.
        """
        expected = {
            "instanceId": self.instance_id,
            "projectRoot": str(self.project_root),
            "url": f"{self.origin}/mcp",
            "pid": self.pid,
        }
        found = body if isinstance(body, dict) else {}
        for key, value in expected.items():
            if found.get(key) != value:
                raise LoomDiscoveryError(
                    f"the service at {self.origin} is not the one of {self.project_root}: its {key} is another"
                )


def find_project(start: Union[str, os.PathLike[str], None] = None) -> Path:
    """Return the real path of the first folder, from `start` upward, that holds a regular file `intloom.yaml`.

    Raises:
        LoomDiscoveryError: There is none (`code` is `offline`).
    """
    begin = Path(os.path.abspath(os.getcwd() if start is None else start))
    for folder in (begin, *begin.parents):
        try:
            if stat.S_ISREG(os.lstat(folder / MARKER).st_mode):
                return Path(os.path.realpath(folder))
        except OSError:
            continue
    raise LoomDiscoveryError(f"no {MARKER} in {begin} or a folder above it: not a Loom project", code="offline")


def discover(start: Union[str, os.PathLike[str], None] = None) -> Discovered:
    """Find the running service of the project that `start` lies in. Reads three files, connects to nothing.

    Raises:
        LoomDiscoveryError: There is no project, no service runs (`code` is `offline`), or a file is not as it has to be
            (`untrusted`).
    """
    root = find_project(start)
    folder = root / FOLDER
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        raise _offline(root) from None
    except OSError as error:
        raise LoomDiscoveryError(f"{folder}: cannot be read ({type(error).__name__})") from None
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise LoomDiscoveryError(f"{folder}: is not a directory of its own")
    _check_private(folder, found)
    connection = _read(folder / "connection.json", root)
    service = _read(folder / "service.json", root)
    port, token, storage = _check_connection(folder / "connection.json", connection, root)
    instance_id, pid = _check_service(folder / "service.json", service, root, port, storage)
    return Discovered(root, port, token, instance_id, pid)


def _offline(root: Path) -> LoomDiscoveryError:
    return LoomDiscoveryError(f"no Loom service runs for {root}", code="offline")


def _check_private(path: Path, found: os.stat_result) -> None:
    if os.name == "posix" and found.st_mode & 0o077:
        raise LoomDiscoveryError(f"{path}: others than its owner may use it (mode {found.st_mode & 0o777:o})")


def _read(path: Path, root: Path) -> dict[str, Any]:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        handle = os.open(path, flags)
    except FileNotFoundError:  # also between two steps of a writer that replaces it
        raise _offline(root) from None
    except OSError:
        raise LoomDiscoveryError(f"{path}: is not a regular file that can be read") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise LoomDiscoveryError(f"{path}: is not a regular file")
        _check_private(path, found)
        data = file.read(MAX_FILE_BYTES + 1)
    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise LoomDiscoveryError(f"{path}: does not hold JSON") from None
    if not isinstance(body, dict):
        raise LoomDiscoveryError(f"{path}: does not hold a JSON object")
    return body


def _check_connection(path: Path, body: dict[str, Any], root: Path) -> tuple[int, str, str]:
    _check_keys(path, body, {"version", "projectRoot", "port", "token", "storage"}, set())
    _check_root(path, body, root)
    port, token = body["port"], body["token"]
    if type(port) is not int or not 1 <= port <= 65535:
        raise _wrong(path, "port", "be 1 to 65535")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise _wrong(path, "token", "be 43 characters of A-Za-z0-9_-")
    return port, token, _storage(path, body)


def _check_service(path: Path, body: dict[str, Any], root: Path, port: int, storage: str) -> tuple[str, int]:
    required = {"version", "projectRoot", "pid", "instanceId", "url", "startedAt", "storage"}
    _check_keys(path, body, required, {"logFile"})
    _check_root(path, body, root)
    pid, instance = body["pid"], body["instanceId"]
    if type(pid) is not int or pid < 1:
        raise _wrong(path, "pid", "be a positive number")
    if not _is_uuid(instance):
        raise _wrong(path, "instanceId", "be a UUID")
    if not isinstance(body["startedAt"], str):
        raise _wrong(path, "startedAt", "be a time")
    if body["url"] != f"http://127.0.0.1:{port}/mcp":
        raise _wrong(path, "url", "be the address of this project's port")
    if _storage(path, body) != storage:
        raise _wrong(path, "storage", "be the one of connection.json")
    log = body.get("logFile")
    if log is not None and not (isinstance(log, str) and _LOG_FILE.fullmatch(log)):
        raise _wrong(path, "logFile", "be a bare file name")
    return instance, pid


def _check_keys(path: Path, body: dict[str, Any], required: set[str], optional: set[str]) -> None:
    for key in sorted(required - body.keys()):
        raise LoomDiscoveryError(f"{path}: {key} is missing")
    for key in sorted(body.keys() - required - optional):
        raise LoomDiscoveryError(f"{path}: holds a key that is not known: {key[:40]!r}")
    if type(body["version"]) is not int or body["version"] != 1:
        raise _wrong(path, "version", "be 1")


def _check_root(path: Path, body: dict[str, Any], root: Path) -> None:
    if body["projectRoot"] != str(root):
        raise _wrong(path, "projectRoot", f"be {root}")


def _storage(path: Path, body: dict[str, Any]) -> str:
    storage = body["storage"]
    if storage not in _STORAGE:
        raise _wrong(path, "storage", f"be one of {', '.join(_STORAGE)}")
    return str(storage)


def _is_uuid(value: object) -> bool:
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value.lower()
    except ValueError:
        return False


def _wrong(path: Path, key: str, must: str) -> LoomDiscoveryError:
    return LoomDiscoveryError(f"{path}: {key} must {must}")
