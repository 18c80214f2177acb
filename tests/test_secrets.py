"""The credential is in the request and nowhere else: not in reprs, logs, errors, tracebacks with locals or pickles."""

from __future__ import annotations

import copy
import http.client
import io
import logging
import pickle
import threading
import traceback
from typing import Any, Iterator, Type

import pytest

import mantyx_sync
from mantyx_sync import MantyxClient, MantyxConfigError, MantyxError, mantyx_mcp, tool
from mantyx_sync import errors as errors_module
from mantyx_sync.local import LocalServer, Pause, ScriptedModel, ToolUse
from tests.wire import WireServer, answer, refuse, unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")

MARKER = "sk-MARKER-7f3a9"
SPEC: dict[str, Any] = {"system_prompt": "x", "prompt": "y"}


def client_of(url: str, **options: Any) -> MantyxClient:
    return MantyxClient(api_key=MARKER, workspace_slug="local", base_url=url, max_retries=0, **options)


@tool
def act() -> str:
    """Act."""
    return "ok"


def reachable(root: object) -> Iterator[object]:
    """Yield what a dump that walks through attributes and containers would show."""
    seen: set[int] = set()
    queue = [root]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, (type, type(threading), logging.Logger)):
            continue
        seen.add(id(item))
        yield item
        if isinstance(item, dict):
            queue += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            queue += item
        else:
            queue += list(getattr(item, "__dict__", {}).values())


def locals_of(error: BaseException) -> str:
    """Format an error as an error tracker does: causes, contexts, and the locals of every frame."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


# --------------------------------------------------------------------------- reprs and walks


def test_no_repr_shows_the_credential() -> None:
    model = ScriptedModel([ToolUse("act", {}), "Done."])
    with LocalServer(model, api_key=MARKER) as server, client_of(server.url) as client:
        run = client.stream_agent(**SPEC, tools=[act])
        result = run.result()
        things = [client, client.with_options(max_retries=1), run, result, client.get_run(run.run_id)]
        things += [client.list_runs(), client.list_models(), *run]
        for thing in things:
            assert MARKER not in repr(thing)
            assert MARKER not in str(thing)
        run.close()


def test_a_walk_through_the_attributes_of_a_client_and_a_run_finds_no_credential() -> None:
    with LocalServer(ScriptedModel(["Done."]), api_key=MARKER) as server, client_of(server.url) as client:
        run = client.stream_agent(**SPEC)
        run.result()
        shown = 0
        for item in [*reachable(client), *reachable(run)]:
            shown += 1
            assert MARKER not in repr(item), f"in a {type(item).__name__}"
        assert shown > 100, "the walk found next to nothing"
        run.close()


def test_the_headers_of_a_tool_ref_are_not_shown() -> None:
    ref = mantyx_mcp(name="docs", url="https://mcp.example/x", headers={"Authorization": f"Bearer {MARKER}"})
    spec = mantyx_sync.RunSpec(system_prompt="x", prompt="y", tools=[ref])
    assert MARKER not in repr(ref)
    assert MARKER not in repr(spec)


# --------------------------------------------------------------------------- logs


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """Log all there is, at DEBUG, as an application that debugs its HTTP would."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield out
    root.setLevel(level)
    root.removeHandler(handler)


def test_no_log_shows_the_credential_nor_prompts_arguments_or_results(
    everything_logged: io.StringIO, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http.client.HTTPConnection, "debuglevel", 1)

    @tool
    def look(secret: str) -> str:
        """Look."""
        return "RESULT-text"

    model = ScriptedModel([["DELTA-text ", ToolUse("look", {"secret": "ARGUMENT-text"})], "Done."])
    with LocalServer(model, api_key=MARKER) as server, client_of(server.url) as client:
        client.run_agent(system_prompt="SYSTEM-text", prompt="PROMPT-text", tools=[look])
        client.list_runs(metadata={"k": "QUERY-text"})
    logged = everything_logged.getvalue()
    ours = "\n".join(line for line in logged.splitlines() if line.startswith("mantyx_sync"))
    assert "stream opened" in ours, "our own lines should be there"
    assert "agent-runs" in logged
    out = capfd.readouterr()
    assert MARKER not in logged + out.out + out.err
    for text in ("RESULT-text", "ARGUMENT-text", "DELTA-text", "PROMPT-text", "SYSTEM-text", "QUERY-text"):
        assert text not in ours


# --------------------------------------------------------------------------- errors


CALLS: dict[str, Any] = {
    "run": lambda client: client.run_agent(**SPEC, timeout=0.3),
    "stream": lambda client: list(client.attach_run("run_1", timeout=0.3)),
    "list": lambda client: client.list_runs(),
    "cancel": lambda client: client.cancel_run("run_1"),
}


def failing(server_url: str, call: str) -> BaseException:
    with client_of(server_url) as client, pytest.raises(MantyxError) as caught:
        CALLS[call](client)
    return caught.value


def reset(peer: Any) -> None:
    peer.request()
    peer.reset()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "script",
    [
        refuse(401, b'{"error":"unauthorized"}'),
        refuse(302, b"", location="http://elsewhere.example/?key=1"),
        refuse(404),
        answer(b"<html>", content_type="text/html"),
        reset,
    ],
    ids=["401", "302", "404", "html", "reset"],
)
def test_errors_and_their_locals_hold_no_credential(call: str, script: Any, request: pytest.FixtureRequest) -> None:
    if call == "cancel" and "html" in request.node.name:
        pytest.skip("nothing of a cancel's answer is read")
    with WireServer(script) as server:
        error = failing(server.url, call)
        assert any(MARKER in r.headers["authorization"] for r in server.requests), "it is in the request"
    assert_clean(error)


@pytest.mark.parametrize("call", ["run", "list", "cancel"])
def test_an_error_of_connecting_holds_no_credential(call: str) -> None:
    assert_clean(failing(f"http://127.0.0.1:{unused_port()}", call))


def assert_clean(error: BaseException) -> None:
    assert isinstance(error, MantyxError)
    # The frames of this test are the caller's: it is our frames, and the libraries' below, that must be clean.
    text = locals_of(error)
    assert MARKER not in text, [line for line in text.splitlines() if MARKER in line]
    assert MARKER not in repr(error) + str(error) + repr(vars(error))
    assert MARKER.encode() not in pickle.dumps(error)


def test_ctrl_c_in_the_middle_of_a_request_shows_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, *args: object) -> None:
        raise KeyboardInterrupt

    with WireServer(answer()) as server, client_of(server.url) as client:
        client.cancel_run("run_1")
        monkeypatch.setattr(http.client.HTTPResponse, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            client.run_agent(**SPEC)
        monkeypatch.undo()
    assert MARKER not in locals_of(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"workspace_slug": ""},
        {"base_url": "ftp://x"},
        {"timeout": -1},
        {"access_token": MARKER},
        {"max_tool_workers": 0},
        {"api_key": f"{MARKER}\nX: y"},
        {"api_key": f"{MARKER}é"},
        {"api_key": MARKER.encode()},
    ],
)
def test_a_client_that_cannot_be_made_shows_no_credential_in_its_own_frames(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MANTYX_WORKSPACE_SLUG", raising=False)
    with pytest.raises(MantyxConfigError) as caught:
        MantyxClient(**{"api_key": MARKER, "workspace_slug": "s", **settings})
    assert_own_frames_are_clean(caught.value)
    assert MARKER not in str(caught.value)
    assert MARKER not in repr(caught.value)


def test_a_key_from_the_environment_is_not_shown_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTYX_API_KEY", f"{MARKER}\nX: y")
    with pytest.raises(MantyxConfigError) as caught:
        MantyxClient(workspace_slug="s")
    assert_own_frames_are_clean(caught.value)


@pytest.mark.parametrize("error", [ConnectionResetError, KeyboardInterrupt])
def test_a_request_that_cannot_be_sent_shows_no_credential_in_our_frames(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, data: object) -> None:
        raise error

    with WireServer(answer()) as server, client_of(server.url) as client:
        client.cancel_run("run_1")
        monkeypatch.setattr(http.client.HTTPConnection, "send", broken)
        with pytest.raises((MantyxError, error)) as caught:
            client.run_agent(**SPEC)
        monkeypatch.undo()
    assert_own_frames_are_clean(caught.value)


def assert_own_frames_are_clean(error: BaseException | None) -> None:
    frames = 0
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if "mantyx_sync" in frame.f_code.co_filename.split("tests")[0] and "test_" not in frame.f_code.co_filename:
                frames += 1
                shown = [name for name, value in frame.f_locals.items() if MARKER in safe_repr(value)]
                assert not shown, f"{frame.f_code.co_name}: {shown}"
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    assert frames, "no frame of ours was looked at"


def safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # an object that is half made
        return repr(error)


# --------------------------------------------------------------------------- pickles


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_client_is_not_pickled_or_copied_and_says_what_to_do(take: Any) -> None:
    with client_of("http://127.0.0.1:1") as client, pytest.raises(TypeError, match="Make one where it is needed") as c:
        take(client)
    assert "lock" not in str(c.value)


def test_a_run_is_not_pickled_or_copied_and_says_what_to_do() -> None:
    hold = threading.Event()
    with LocalServer(ScriptedModel([Pause(hold)]), api_key=MARKER) as server, client_of(server.url) as client:
        run = client.stream_agent(**SPEC)
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="attach_run"):
                take(run)
        run.abort()


def every_error() -> list[Type[BaseException]]:
    classes = [getattr(errors_module, name) for name in errors_module.__all__]
    return [c for c in classes if isinstance(c, type) and issubclass(c, BaseException)]


def subclasses_of(base: type) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses_of(each)


def test_every_error_class_of_the_package_is_known_here_and_pickles() -> None:
    # The tree is walked, so that one that is defined elsewhere is not forgotten.
    found = {c for c in subclasses_of(MantyxError) if c.__module__.startswith("mantyx_sync")}
    assert found | {MantyxError} >= set(every_error())
    for cls in found:
        error = cls.__new__(cls)  # type: ignore[call-overload]
        error.args = ("what happened",)
        error.__dict__.update(message="what happened", code="c", status=None, hint=None, run_id="run_1")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is cls
        assert (again.args, again.run_id) == (("what happened",), "run_1")
