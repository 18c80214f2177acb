"""In a real notebook: what cells show, the view that lives, interrupting a cell, and running cells again and again."""

from __future__ import annotations

import os
import queue
import textwrap
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync.local import LocalServer, ModelRequest, Pause, ScriptedModel, Text, Thinking, ToolUse
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 60.0


def kernel_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a kernel that finds this package, and nobody's settings or account."""
    mine = {
        name: value for name, value in os.environ.items() if not name.startswith(("MANTYX_", "JUPYTER_", "PYTEST_"))
    }
    return {**mine, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / "ipython")}


@dataclass
class Ran:
    """What came of a cell, and every message that it sent."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    status: str = ""
    error: str = ""

    def contents(self, *kinds: str) -> list[Any]:
        return [message["content"] for message in self.messages if message["msg_type"] in kinds]

    @property
    def printed(self) -> str:
        return "".join(content["text"] for content in self.contents("stream"))

    @property
    def shown(self) -> list[Any]:
        """The bundles that were shown as outputs of their own."""
        return [content["data"] for content in self.contents("display_data", "execute_result")]

    @property
    def last_shown(self) -> Any:
        """The bundle that is to be seen in the end."""
        return self.contents("display_data", "execute_result", "update_display_data")[-1]["data"]

    @property
    def updates(self) -> list[Any]:
        """The bundles that took the place of one shown before."""
        return [content["data"] for content in self.contents("update_display_data")]


class Kernel:
    """A kernel as a notebook's front end has it."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client import KernelManager

        self.manager: Any = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=kernel_environment(folder), cwd=str(folder))
        self.client: Any = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE_S)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        for context in (self.client.context, self.manager.context):
            context.destroy(linger=0)

    def begin(self, code: str) -> str:
        """Run a cell; do not wait for it."""
        return str(self.client.execute(textwrap.dedent(code)))

    def end(self, asked: str, on_message: Callable[[dict[str, Any]], None] = lambda message: None) -> Ran:
        """Wait for a cell to end."""
        ran = Ran()
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.1, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell does not end; so far it sent {ran.messages}") from None
            if message["parent_header"].get("msg_id") != asked:
                continue
            ran.messages.append(message)
            on_message(message)
            if message["msg_type"] == "error":
                ran.error = message["content"]["ename"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
        while True:
            reply = self.client.get_shell_msg(timeout=DEADLINE_S)
            if reply["parent_header"].get("msg_id") == asked:
                ran.status = reply["content"]["status"]
                return ran

    def run(self, code: str) -> Ran:
        ran = self.end(self.begin(code))
        assert ran.status == "ok", ran.contents("error")
        return ran

    def interrupt(self) -> None:
        """Do what the button with the square does."""
        self.manager.interrupt_kernel()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    found = Kernel(tmp_path_factory.mktemp("notebook"))
    yield found
    found.close()


def connect(kernel: Kernel, server: LocalServer) -> None:
    """Give the cells a client of a server in this process, a tool, and a look at what is left behind."""
    kernel.run(
        f"""
        import gc, os, threading, time
        from mantyx_sync import MantyxClient, tool
        from mantyx_sync.display import watch

        SETTINGS = {dict(server.client_settings())!r}
        client = MantyxClient(**SETTINGS)
        HELP = {{"system_prompt": "Help."}}

        @tool
        def look_up(order: str) -> str:
            "Look an order up."
            return "shipped"

        def left():
            gc.collect()
            threads = sorted(t.name for t in threading.enumerate() if t.name.startswith("mantyx"))
            links = []
            for name in os.listdir("/proc/self/fd"):
                try:
                    links.append(os.readlink(f"/proc/self/fd/{{name}}"))
                except OSError:
                    pass
            return threads, sum(link.startswith("socket:") for link in links)
        """
    )


def value_of(kernel: Kernel, expression: str) -> Any:
    """Return the value of an expression in the kernel."""
    return eval(kernel.run(f"print(repr({expression}))").printed)


# ------------------------------------------------------------- what cells show

REPRS = {
    "result": 'client.run_agent(**HELP, prompt="Hi", tools=[look_up])',
    "run": 'client.start_agent(**HELP, prompt="Hi", tools=[look_up])',
    "snapshot": "client.get_run(_.run_id)",
    "session": "session",
    "history": "session.events_page(last_messages=2)",
    "catalog": "client.list_models()",
    "runs": "client.list_runs()",
    "sessions": "client.list_sessions()",
    "evals": "client.list_eval_runs()",
    "timeline": "client.run_agent(**HELP, prompt='Hi', tools=[look_up]).timeline()",
    "watched": 'watch(client.stream_agent(**HELP, prompt="Hi", tools=[look_up]))',
}


def test_a_saved_notebook_shows_what_its_cells_showed(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    with LocalServer(ScriptedModel(calling)) as server:
        setup = f"""
            from mantyx_sync import MantyxClient, tool
            from mantyx_sync.display import watch
            client = MantyxClient(**{dict(server.client_settings())!r})
            HELP = {{"system_prompt": "Help."}}
            @tool
            def look_up(order: str) -> str:
                "Look an order up."
                return "shipped <b>today</b>"
            session = client.create_session(**HELP, tools=[look_up])
            _ = session.send("Hi")
        """
        cells = [textwrap.dedent(setup), *REPRS.values(), "client.close()"]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        runner = NotebookClient(notebook, timeout=DEADLINE_S, kernel_name="python3")
        runner.execute(cwd=str(tmp_path), env=kernel_environment(tmp_path))
    saved = nbformat.reads(nbformat.writes(notebook), as_version=4)
    nbformat.validate(saved)
    for name, cell in zip(REPRS, saved.cells[1:]):
        (output,) = cell.outputs
        html, plain = output.data["text/html"], output.data["text/plain"]
        assert 'class="mx-root"' in html, name
        assert "<script" not in html, name
        assert "<b>today" not in html, name
        assert len(plain) < 2000, f"{name}: {plain}"
        assert len(html) < 120_000, f"{name}: {len(html)}"
    assert ">succeeded<" in saved.cells[1 + list(REPRS).index("watched")].outputs[0].data["text/html"]
    assert "<svg" in saved.cells[1 + list(REPRS).index("timeline")].outputs[0].data["text/html"]


def calling(request: ModelRequest) -> Any:
    """Return the turns of a run that calls a tool once."""
    return [[ToolUse("look_up", {"order": "17"})], ["It has shipped."]]


# ------------------------------------------------------------- the view that lives


def test_the_live_view_is_one_output_that_changes_in_place(kernel: Kernel) -> None:
    go, reached = threading.Event(), threading.Event()
    words = [Text(f"word{number} ") for number in range(300)]
    turns = [
        [Thinking("Hm. "), "Let me see. ", ToolUse("look_up", {"order": "17"})],
        [*words, Pause(go, reached), "End."],
    ]
    with LocalServer(ScriptedModel(turns)) as server:
        connect(kernel, server)
        asked = kernel.begin(
            """
            watch(client.stream_agent(
                **HELP, prompt="Hi", tools=[look_up], reasoning_level="low", plan={"steps": ["Look", "Tell"]}
            ))
            """
        )
        seen: list[str] = []

        def note(message: dict[str, Any]) -> None:
            if message["msg_type"] == "update_display_data":
                seen.append(message["content"]["data"]["text/html"])
                if reached.is_set() and len({html for html in seen if "word299" in html}) > 3:
                    go.set()  # it was drawn again and again while nothing came, and time went on in it

        ran = kernel.end(asked, note)
        assert ran.status == "ok"
        kernel.run("client.close()")
    assert len(ran.shown) == 1, "the result is not shown once more below its card"
    assert ">running<" in ran.shown[0]["text/html"]
    assert 4 <= len(ran.updates) <= 60, "three hundred events, and few pictures of them"
    assert {
        message["content"]["transient"]["display_id"] for message in ran.messages if "transient" in message["content"]
    }
    ids = {content["transient"]["display_id"] for content in ran.contents("display_data", "update_display_data")}
    assert len(ids) == 1
    last = ran.updates[-1]["text/html"]
    assert all(
        shown in last for shown in (">succeeded<", "word299", "End.", "look_up", "Plan · ", "What the model thought")
    )
    assert all(">running<" in update["text/html"] for update in ran.updates[:-1])


def test_a_watched_result_is_the_cells_value_and_later_cells_show_it(kernel: Kernel) -> None:
    with LocalServer(ScriptedModel(["Hello"])) as server:
        connect(kernel, server)
        kernel.run('watch(client.stream_agent(**HELP, prompt="Hi"))')
        assert [set(shown) for shown in kernel.run("_").shown] == [{"text/plain", "text/html"}]
        both = kernel.run('r = watch(client.stream_agent(**HELP, prompt="Hi")); display(r.model); r.text')
        assert len(both.shown) == 3, "the card, and what else the cell shows"
        kernel.run("client.close()")


# ------------------------------------------------------------- interrupting a cell

WAITING = {
    "run_agent": 'client.run_agent(**HELP, prompt="Hi", tools=[look_up])',
    "run_agent with callbacks": 'client.run_agent(**HELP, prompt="Hi", on_event=lambda event: None)',
    "watch": 'watch(client.stream_agent(**HELP, prompt="Hi", tools=[look_up]))',
    "result": 'client.start_agent(**HELP, prompt="Hi").result()',
    "a loop": 'with client.stream_agent(**HELP, prompt="Hi") as run:\n    for event in run: pass',
    "map": 'list(client.map(["a", "b"], **HELP, max_workers=2))',
    "send": 'client.create_session(**HELP).send("Hi")',
    "eval": 'client.run_eval(dataset={"cases": [{"name": "n", "input": {"prompt": "Hi"}, "scorers": '
    '[{"type": "contains", "value": "x"}]}]}, agent=HELP)',
    "a tool at work": (
        "@tool\ndef slow() -> str:\n    'Slow.'\n    started = time.time()\n    while time.time() - started < 1: "
        "time.sleep(0.01)\n    return 'x'\nclient.run_agent(**HELP, prompt='call slow', tools=[slow])"
    ),
}


@pytest.mark.parametrize("call", WAITING)
def test_interrupting_a_cell_cancels_its_runs_and_leaves_a_usable_kernel(kernel: Kernel, call: str) -> None:
    never, reached = threading.Event(), threading.Event()

    def turns(request: ModelRequest) -> Any:
        if request.prompt == "call slow":
            return [[ToolUse("slow", {})], [Pause(never, reached)]]
        return [["Begun. ", Pause(never, reached), "Never."]] if request.prompt != "again" else [["Hello"]]

    with LocalServer(ScriptedModel(turns)) as server:
        connect(kernel, server)
        threads, sockets = value_of(kernel, "left()")
        asked = kernel.begin(WAITING[call])
        is_streaming: Callable[[], object] = lambda: server.open_streams >= 1 and reached.is_set()  # noqa: E731
        if call == "a tool at work":
            is_streaming = lambda: server.open_streams >= 1  # noqa: E731
        wait_until(is_streaming, "the cell does not get to its run", DEADLINE_S)
        began = time.monotonic()
        kernel.interrupt()
        ran = kernel.end(asked)
        took = time.monotonic() - began
        assert (ran.status, ran.error) == ("error", "KeyboardInterrupt")
        assert took < 3.0, f"{took:.1f} s"
        wait_until(lambda: all(run.is_terminal for run in server.runs), "a run was left going", DEADLINE_S)
        assert {run.status for run in server.runs} == {"cancelled"}
        wait_until(lambda: server.open_streams == 0, "a stream was left open", DEADLINE_S)
        # The same client works on.
        assert value_of(kernel, 'client.run_agent(**HELP, prompt="again").text') == "Hello"
        kernel.run("client.close()")
        wait_until(lambda: server.open_connections == 0, "a connection was left open", DEADLINE_S)
        wait_until(
            lambda: value_of(kernel, "left()") == (threads, sockets), f"left: {value_of(kernel, 'left()')}", 10.0
        )
        never.set()
        if call == "watch":
            html = ran.last_shown["text/html"]
            assert ">cancelled<" in html
            assert "The cell was interrupted, and the run was cancelled." in html


# ------------------------------------------------------------- everyday life of a kernel


def test_running_a_cell_again_and_again_leaves_nothing_behind(kernel: Kernel) -> None:
    cell = """
        c = MantyxClient(**SETTINGS)
        c.run_agent(**HELP, prompt="Hi", tools=[look_up])
        run = c.stream_agent(**HELP, prompt="Hi", tools=[look_up])
        next(iter(run))
        {last}
    """
    with LocalServer(ScriptedModel(calling)) as server:
        connect(kernel, server)
        early_sockets = 0
        for number in range(50):
            kernel.run(cell.format(last="watch(run)" if number % 2 else "pass"))
            if number == 4:
                early_sockets = value_of(kernel, "left()")[1]
        # What is dropped is let go of at once; its threads end a moment later. The last client, and ours, are in use.
        wait_until(lambda: len(value_of(kernel, "left()")[0]) <= 2, "threads grow", 20.0)
        assert value_of(kernel, "left()")[1] <= early_sockets
        kernel.run("del c, run; client.close()")
        wait_until(lambda: value_of(kernel, "left()")[0] == [], "threads were left", 10.0)


def test_everything_works_where_an_event_loop_is_running(kernel: Kernel) -> None:
    with LocalServer(ScriptedModel(["Hello"])) as server:
        connect(kernel, server)
        kernel.run(
            """
            import asyncio
            assert asyncio.get_running_loop().is_running()
            assert watch(client.stream_agent(**HELP, prompt="Hi")).text == "Hello"
            """
        )
        kernel.run(
            """
            async def ask():
                assert watch(client.stream_agent(**HELP, prompt="Hi")).text == "Hello"
                return client.run_agent(**HELP, prompt="Hi").text
            assert await ask() == "Hello"
            client.close()
            """
        )


def test_what_callbacks_print_is_in_the_cell_that_asked(kernel: Kernel) -> None:
    with LocalServer(ScriptedModel(["Hel", "lo"])) as server:
        connect(kernel, server)
        for number in range(3):
            ran = kernel.run(
                f"""
                here = threading.current_thread()
                def note(text):
                    assert threading.current_thread() is here
                    print({number}, text)
                client.run_agent(**HELP, prompt="Hi", on_assistant_delta=note).text
                """
            )
            assert ran.printed == f"{number} Hel\n"
        kernel.run("client.close()")


# ------------------------------------------------------------- the example


def test_the_example_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    path = ROOT / "examples" / "notebook.ipynb"
    assert path.stat().st_size < 20_000, "it is kept without outputs"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    runner = NotebookClient(notebook, timeout=DEADLINE_S, kernel_name="python3")
    runner.execute(cwd=str(tmp_path), env=kernel_environment(tmp_path))
    views = [
        output.data["text/html"]
        for cell in code
        for output in cell.outputs
        if output.output_type in ("display_data", "execute_result") and "text/html" in output.data
    ]
    assert len(views) >= 4
    assert all('class="mx-root"' in view for view in views)
    assert any("<svg" in view for view in views)
    assert not [output for cell in code for output in cell.outputs if output.get("name") == "stderr"]
