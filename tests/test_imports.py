"""Imports: which module may know which, what importing costs, and that the public names are said consistently."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest

import mantyx_sync

PACKAGE = Path(mantyx_sync.__file__).parent
ROOT = PACKAGE.parent

# ------------------------------------------------------------------------------------------- directions

# From the ground up. A module imports from its own floor and from those listed for it, never upwards.
FLOORS: dict[str, frozenset[str]] = {
    "base": frozenset(),  # limits and errors: for everybody
    "data": frozenset({"base"}),  # specs, events, results: values in, values out
    "hints": frozenset({"base", "data"}),  # type hints to JSON Schema
    "tools": frozenset({"base", "data", "hints"}),  # functions as tools; no HTTP
    "transport": frozenset({"base"}),  # HTTP and event streams; no MANTYX
    "client": frozenset({"base", "data", "hints", "tools", "transport"}),
}
WINGS = {"local", "mcp", "a2a", "spacefix", "loom", "display", "web", "cli", "pytest_plugin"}
BASE = {"_version", "api_errors", "errors", "limits", "reprs", "surroundings", "views"}
DATA = {
    "checks",
    "eval_results",
    "eval_specs",
    "events",
    "formats",
    "guards",
    "messages",
    "mismatch",
    "models",
    "pages",
    "results",
    "schema",
    "schema_effort",
    "shapes",
    "spec",
    "timing",
    "toolspec",
    "values",
    "wire",
}
# What decides without doing: these start no thread and open no file or socket.
PURE = {"base", "data", "hints"}

# Upward imports that stand for a name in an annotation, or break a circle inside a function; each with its reason.
ALLOWED_UPWARDS = {
    ("errors", "events"): "annotations only",
    ("errors", "timing"): "annotations only",
    ("errors", "values"): "annotations only",
    ("views", "display"): "the one door to how things are shown: opened inside methods, when somebody looks",
    ("toolspec", "tools.function"): "a spec wraps plain functions when it is built, inside a function",
}
# A wing's own modules, and of the package only these; the last ones for the server that records, inside functions.
LOCAL_MAY_IMPORT = {"a2a", "limits", "local", "mcp", "reprs", "schema"}
LOCAL_MAY_IMPORT |= {"_version", "api_errors", "errors", "settings", "transport"}
STANDARD_BUT_ACTIVE = {"socket", "ssl", "selectors", "subprocess", "http", "urllib.request", "queue", "asyncio"}


class Import(NamedTuple):
    module: str
    target: str
    is_ours: bool
    line: int


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> str:
    top = module.partition(".")[0]
    if top == "__main__":
        return "cli"
    if top in WINGS:
        return top
    if module in BASE:
        return "base"
    if module in DATA:
        return "data"
    return top if top in ("hints", "tools", "transport") else "client"


def read_imports(path: Path) -> Iterator[Import]:
    """Yield every import of a module, those in functions and under TYPE_CHECKING included."""
    module = module_name(path)
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    package = [part for part in package if part]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                ours = alias.name.partition(".")[0] == "mantyx_sync"
                yield Import(module, alias.name.partition("mantyx_sync.")[2] if ours else alias.name, ours, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            name = node.module or ""
            if node.level:
                base = package[: len(package) - node.level + 1]
                targets = [".".join([*base, name] if name else [*base, alias.name]) for alias in node.names]
            elif name.partition(".")[0] == "mantyx_sync":
                inner = name.partition("mantyx_sync")[2].lstrip(".")
                targets = [inner or alias.name for alias in node.names]
            else:
                yield Import(module, name, False, node.lineno)
                continue
            for target in dict.fromkeys(targets):
                yield Import(module, target, True, node.lineno)


SOURCES = sorted(PACKAGE.rglob("*.py"))
IMPORTS = [found for path in SOURCES for found in read_imports(path)]


def test_every_listed_module_exists() -> None:
    modules = {module_name(path) for path in SOURCES}
    assert modules >= BASE | DATA


def test_imports_never_point_upwards() -> None:
    wrong = []
    for found in IMPORTS:
        floor = floor_of(found.module)
        if not found.is_ours or floor in WINGS or found.module == "":
            continue
        target = floor_of(found.target)
        if target == floor or target in FLOORS[floor] or (found.module, found.target) in ALLOWED_UPWARDS:
            continue
        wrong.append(f"{found.module}:{found.line} ({floor}) imports {found.target} ({target})")
    assert not wrong
    assert set(ALLOWED_UPWARDS) <= {(found.module, found.target) for found in IMPORTS}, "an exception nobody needs"


def test_the_transport_knows_only_our_errors() -> None:
    ours = {found.target for found in IMPORTS if found.is_ours and floor_of(found.module) == "transport"}
    assert {name for name in ours if not name.startswith("transport")} == {"errors"}


def test_only_the_transport_imports_requests_at_run_time() -> None:
    users = set()
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_types = {inner for node in ast.walk(tree) if _is_for_types(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if node not in for_types and {n.partition(".")[0] for n in names} & {"requests", "urllib3", "sseclient"}:
                users.add(module_name(path))
    assert {name for name in users if not name.startswith("transport.")} == set()


def test_jsonschema_is_imported_in_one_module_of_the_floors_and_only_inside_functions() -> None:
    users = {f.module for f in IMPORTS if not f.is_ours and f.target.partition(".")[0] == "jsonschema"}
    assert {name for name in users if floor_of(name) not in WINGS} == {"schema"}
    top_level = [
        name
        for path in SOURCES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if not node.__dict__.get("level")
    ]
    assert "jsonschema" not in {name.partition(".")[0] for name in top_level}


def test_nothing_optional_is_imported_outside_functions() -> None:
    known = {"mantyx_sync", "requests", "urllib3", "sseclient"} | _standard_library()
    wrong = [
        f"{module_name(path)}:{node.lineno}: {name}"
        for path in SOURCES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if name.partition(".")[0] not in (known | {"pytest"} if module_name(path) == "pytest_plugin" else known)
    ]
    assert not wrong


def test_the_floors_know_no_wing_and_the_embedded_server_knows_limits_schemas_and_whom_it_dials() -> None:
    # The package itself names the wings' refs; it loads them when they are asked for. One door leads to `display`.
    floors = [f for f in IMPORTS if f.is_ours and f.module and floor_of(f.module) not in WINGS]
    floors = [f for f in floors if (f.module, f.target) != ("views", "display")]
    assert not {f.target.partition(".")[0] for f in floors} & WINGS
    of_local = {f.target.partition(".")[0] for f in IMPORTS if f.is_ours and floor_of(f.module) == "local"}
    assert of_local == LOCAL_MAY_IMPORT


def test_the_two_sides_of_a2a_know_nothing_of_each_other() -> None:
    sides = {f"a2a.{side}" for side in ("client", "server")}
    assert sides <= {module_name(path) for path in SOURCES}
    wrong = [
        f"{f.module}:{f.line} imports {f.target}"
        for f in IMPORTS
        if f.is_ours and f.module.startswith("a2a.")  # the package itself offers both
        for side in sides
        if f.target.startswith(side) and not f.module.startswith(side)
    ]
    assert not wrong


def test_pure_modules_import_nothing_that_acts() -> None:
    acting = STANDARD_BUT_ACTIVE | {"threading", "concurrent", "requests", "urllib3", "sseclient"}
    wrong = {
        f"{f.module}: {f.target}"
        for f in IMPORTS
        if not f.is_ours and floor_of(f.module) in PURE and (f.target in acting or f.target.partition(".")[0] in acting)
    }
    # A lock around the one-time making of a validator is no thread.
    assert wrong <= {"schema: threading"}


@pytest.mark.parametrize("module", ["tools.ledger", "transport.sse", "transport.retry", "transport.chunked"])
def test_state_machines_import_no_socket_and_no_requests(module: str) -> None:
    mine = {f.target.partition(".")[0] for f in IMPORTS if f.module == module and not f.is_ours}
    assert not mine & {"socket", "ssl", "requests", "urllib3", "concurrent"}


def _standard_library() -> set[str]:
    if sys.version_info >= (3, 10):
        return set(sys.stdlib_module_names)
    import distutils.sysconfig as where  # Python 3.9 has no list: what lies in its library folder

    folder = Path(where.get_python_lib(standard_lib=True))
    names = {path.stem.partition(".")[0] for path in [*folder.iterdir(), *(folder / "lib-dynload").iterdir()]}
    return names | set(sys.builtin_module_names)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


# ------------------------------------------------------------------------------------------- cost

_PROBE = """
import json, sys, threading
opened = []
started = []
def hook(event, args):
    if event in ("socket.__new__", "socket.connect", "socket.bind", "subprocess.Popen", "os.system"):
        opened.append(event)
    elif event == "open" and not str(args[0]).endswith((".py", ".pyc", ".so")) and "__pycache__" not in str(args[0]):
        opened.append(f"open {args[0]}")
    elif event in ("_thread.start_new_thread", "_thread.start_joinable_thread"):
        started.append(event)
import logging
for name in sys.argv[2].split(): __import__(name)
before_handlers = list(logging.getLogger().handlers)
sys.addaudithook(hook)
before = set(sys.modules)
exec(sys.argv[1])
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "opened": opened,
    "started": started,
    "threads": threading.active_count(),
    "root_handlers": len(logging.getLogger().handlers) - len(before_handlers),
}))
"""


def probe(code: str, loaded_before: str = "") -> dict[str, object]:
    """Run `code` in a fresh interpreter; tell what it loaded, opened and started."""
    answer = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", _PROBE, code, loaded_before],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr, answer.stderr
    found: dict[str, object] = json.loads(answer.stdout)
    return found


EVERY_NAME = "import mantyx_sync\nfor name in mantyx_sync.__all__: getattr(mantyx_sync, name)"
OPTIONAL = {"jsonschema", "pydantic", "attrs", "attr", "numpy", "pandas", "gevent", "typing_extensions"}


def test_importing_the_package_loads_next_to_nothing_and_does_nothing() -> None:
    found = probe("import mantyx_sync")
    loaded = {str(name) for name in found["modules"]}  # type: ignore[attr-defined]
    assert not {name.partition(".")[0] for name in loaded} & (
        OPTIONAL | {"requests", "urllib3", "ssl", "sseclient", "asyncio", "socket"}
    )
    assert found["opened"] == []
    assert found["started"] == []
    assert found["threads"] == 1
    assert found["root_handlers"] == 0


def test_resolving_every_public_name_does_nothing_either_and_loads_nothing_optional() -> None:
    found = probe(EVERY_NAME, "requests sseclient")  # urllib3 opens a socket to see whether there is IPv6
    loaded = {str(name).partition(".")[0] for name in found["modules"]}  # type: ignore[attr-defined]
    assert not loaded & OPTIONAL
    assert (found["opened"], found["started"], found["threads"], found["root_handlers"]) == ([], [], 1, 0)


def test_making_a_client_and_a_tool_starts_no_thread_and_opens_no_socket() -> None:
    found = probe(
        "import mantyx_sync\n"
        "client = mantyx_sync.MantyxClient(api_key='k', workspace_slug='s')\n"
        "@mantyx_sync.tool\n"
        "def add(a: int, b: int) -> int: return a + b\n",
        "requests",
    )
    loaded = {str(name).partition(".")[0] for name in found["modules"]}  # type: ignore[attr-defined]
    assert not loaded & {"jsonschema", "pydantic", "asyncio"}
    assert (found["opened"], found["started"]) == ([], [])


def test_the_embedded_server_is_imported_without_the_client_or_requests() -> None:
    found = probe("from mantyx_sync.local import *")
    loaded = {str(name) for name in found["modules"]}  # type: ignore[attr-defined]
    assert not {"requests", "urllib3", "jsonschema", "mantyx_sync.client"} & loaded
    assert (found["opened"], found["started"], found["threads"]) == ([], [], 1)


# ------------------------------------------------------------------------------------------- names


def _type_checking_imports() -> dict[str, str]:
    """Read `__init__.py` as a type checker does: public name to module."""
    names: dict[str, str] = {}
    for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for inner in node.body:
                assert isinstance(inner, ast.ImportFrom)
                assert inner.level == 1
                for alias in inner.names:
                    assert alias.asname == alias.name, f"{alias.name}: a re-export is written `X as X`"
                    names[alias.name] = inner.module or ""
    return names


def test_type_checkers_see_the_names_that_are_there_at_run_time() -> None:
    assert _type_checking_imports() == mantyx_sync._MODULE_OF
    assert sum(map(len, mantyx_sync._NAMES.values())) == len(mantyx_sync._MODULE_OF), "a name is listed twice"


def test_every_public_name_resolves_and_is_public_where_it_lives() -> None:
    for name, module in mantyx_sync._MODULE_OF.items():
        home = importlib.import_module(f"mantyx_sync.{module}")
        assert getattr(mantyx_sync, name) is getattr(home, name)
        assert name in home.__all__, f"{name} is not in __all__ of {module}"


def test_dir_and_all_and_star_show_the_public_names() -> None:
    assert set(mantyx_sync.__all__) == {"__version__", *mantyx_sync._MODULE_OF}
    assert len(mantyx_sync.__all__) == len(set(mantyx_sync.__all__))
    assert set(dir(mantyx_sync)) >= set(mantyx_sync.__all__)
    space: dict[str, object] = {}
    exec("from mantyx_sync import *", space)
    assert set(space) >= set(mantyx_sync.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'MantyxKlient'"):
        mantyx_sync.MantyxKlient  # noqa: B018
    with pytest.raises(ImportError):
        exec("from mantyx_sync import MantyxKlient")


def test_every_error_is_public() -> None:
    errors = importlib.import_module("mantyx_sync.errors")
    classes = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    missing = {name for name in classes if issubclass(getattr(errors, name), Exception)} - set(mantyx_sync.__all__)
    assert missing == {"ToolInputError"}, "what only our own code raises and catches"
