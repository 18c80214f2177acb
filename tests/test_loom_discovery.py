"""Finding a Loom project's service: what is found, and every reason to refuse it (loom §1.2)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable

import pytest

from mantyx_sync.loom.discovery import discover, find_project
from mantyx_sync.loom.errors import LoomDiscoveryError

TOKEN = "Zk3vQ0m7cX1nB5sL9tR2yW8uH4jD6fG_aEoPiKqMxNw"
INSTANCE = "7f1d2c94-51c3-4d0e-8a1b-6f5f0c2b9e77"


class Project:
    """A project folder with the files of a running service, to be spoiled."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.folder = self.root / ".intloom"
        self.folder.mkdir(mode=0o700)
        (self.root / "intloom.yaml").write_text("")
        common = {"version": 1, "projectRoot": str(self.root), "storage": "file"}
        self.connection: dict[str, Any] = {**common, "port": 47110, "token": TOKEN}
        self.service: dict[str, Any] = {
            **common,
            "pid": 4711,
            "instanceId": INSTANCE,
            "url": "http://127.0.0.1:47110/mcp",
            "startedAt": "2026-11-29T10:00:00.000Z",
        }
        self.write()

    def write(self) -> None:
        for name, body in (("connection.json", self.connection), ("service.json", self.service)):
            path = self.folder / name
            path.write_text(json.dumps(body))
            path.chmod(0o600)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_service_is_found_from_any_folder_of_its_project(project: Project) -> None:
    inner = project.root / "a" / "b"
    inner.mkdir(parents=True)
    found = discover(inner)
    assert (found.port, found.token, found.instance_id, found.pid) == (47110, TOKEN, INSTANCE, 4711)
    assert found.origin == "http://127.0.0.1:47110"
    assert TOKEN not in repr(found)


def test_the_project_root_is_a_real_path(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(project.root)
    assert find_project(link) == project.root
    assert discover(link).project_root == project.root


def test_a_marker_that_is_no_regular_file_is_passed_by(project: Project) -> None:
    inner = project.root / "inner"
    (inner / "intloom.yaml").mkdir(parents=True)
    assert find_project(inner) == project.root


def spoil_connection(**change: Any) -> Callable[[Project], None]:
    def spoil(project: Project) -> None:
        project.connection.update(change)
        project.write()

    return spoil


def spoil_service(**change: Any) -> Callable[[Project], None]:
    def spoil(project: Project) -> None:
        project.service.update(change)
        project.write()

    return spoil


def without(name: str, key: str) -> Callable[[Project], None]:
    def spoil(project: Project) -> None:
        del (project.connection if name == "connection" else project.service)[key]
        project.write()

    return spoil


def on_files(action: Callable[[Path], object]) -> Callable[[Project], None]:
    return lambda project: [None, action(project.folder)][0]


def link_folder(folder: Path) -> None:
    folder.rename(folder.parent / "moved")
    folder.symlink_to(folder.parent / "moved")


def link_file(folder: Path) -> None:
    (folder / "connection.json").rename(folder / "moved.json")
    (folder / "connection.json").symlink_to(folder / "moved.json")


def fifo(folder: Path) -> None:
    (folder / "service.json").unlink()
    os.mkfifo(folder / "service.json", 0o600)


OFFLINE: dict[str, Callable[[Project], None]] = {
    "no folder": on_files(lambda folder: folder.rename(folder.parent / "gone")),
    "no connection file": on_files(lambda folder: (folder / "connection.json").unlink()),
    "no service file": on_files(lambda folder: (folder / "service.json").unlink()),
}
UNTRUSTED: dict[str, tuple[Callable[[Project], None], str]] = {
    "a linked folder": (on_files(link_folder), "not a directory of its own"),
    "a linked file": (on_files(link_file), "not a regular file"),
    "a pipe": (on_files(fifo), "not a regular file"),
    "a folder for others": (on_files(lambda folder: folder.chmod(0o750)), "mode 750"),
    "a file for others": (on_files(lambda folder: (folder / "service.json").chmod(0o604)), "mode 604"),
    "no JSON": (on_files(lambda folder: (folder / "service.json").write_text("{")), "does not hold JSON"),
    "no object": (on_files(lambda folder: (folder / "service.json").write_text("[]")), "JSON object"),
    "a huge file": (on_files(lambda folder: (folder / "service.json").write_text("1" * 70_000)), "does not hold JSON"),
    "another version": (spoil_connection(version=2), "version must be 1"),
    "a version that is true": (spoil_connection(version=True), "version must be 1"),
    "another root": (spoil_connection(projectRoot="/elsewhere"), "projectRoot must be"),
    "another root of the service": (spoil_service(projectRoot="/elsewhere"), "projectRoot must be"),
    "port 0": (spoil_connection(port=0), "port must be 1 to 65535"),
    "a port as text": (spoil_connection(port="47110"), "port must be 1 to 65535"),
    "a short token": (spoil_connection(token=TOKEN[:-1]), "token must be 43 characters"),
    "a token with a line end": (spoil_connection(token=TOKEN[:-1] + "\n"), "token must be 43 characters"),
    "an unknown storage": (spoil_connection(storage="memory"), "storage must be one of"),
    "two storages": (spoil_service(storage="sqlite"), "storage must be the one of connection.json"),
    "an unknown key": (spoil_connection(host="example.com"), "a key that is not known"),
    "a missing key": (without("connection", "token"), "token is missing"),
    "a missing key of the service": (without("service", "pid"), "pid is missing"),
    "pid 0": (spoil_service(pid=0), "pid must be"),
    "no UUID": (spoil_service(instanceId="x"), "instanceId must be a UUID"),
    "another address": (spoil_service(url="http://evil.example/mcp"), "url must be"),
    "another port in the address": (spoil_service(url="http://127.0.0.1:1/mcp"), "url must be"),
    "a log file elsewhere": (spoil_service(logFile="../LOG-1T1Z.jsonl"), "logFile must be"),
    "no time": (spoil_service(startedAt=5), "startedAt must be"),
}


@pytest.mark.parametrize("what", OFFLINE)
def test_a_project_without_a_running_service_is_offline(project: Project, what: str) -> None:
    OFFLINE[what](project)
    with pytest.raises(LoomDiscoveryError, match="no Loom service runs") as caught:
        discover(project.root)
    assert caught.value.code == "offline"


def test_a_folder_outside_any_project_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(LoomDiscoveryError, match=r"no intloom\.yaml in") as caught:
        discover(tmp_path)
    assert caught.value.code == "offline"


@pytest.mark.skipif(os.name != "posix", reason="permission bits and pipes are those of POSIX")
@pytest.mark.parametrize("what", UNTRUSTED)
def test_files_that_are_not_as_they_have_to_be_are_refused_and_the_token_is_in_no_message(
    project: Project, what: str
) -> None:
    spoil, sentence = UNTRUSTED[what]
    spoil(project)
    with pytest.raises(LoomDiscoveryError, match=sentence) as caught:
        discover(project.root)
    assert caught.value.code == "untrusted"
    assert TOKEN[:-1] not in str(caught.value)


@pytest.mark.parametrize("key", ["instanceId", "projectRoot", "url", "pid"])
def test_a_running_service_that_is_another_one_is_refused(project: Project, key: str) -> None:
    found = discover(project.root)
    status = dict(project.service)
    found.check_status(status)
    with pytest.raises(LoomDiscoveryError, match=f"its {key} is another"):
        found.check_status({**status, key: "x"})
