"""An embedded server, an A2A app on top of it, and models that wait, for tests of our A2A server."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List

from mantyx_sync import MantyxClient
from mantyx_sync.a2a import A2AApp
from mantyx_sync.a2a.client.folding import Fold
from mantyx_sync.a2a.reading import read_event
from mantyx_sync.local import LocalServer, Pause
from tests.a2a_callers import Caller, connected, make_app
from tests.plain_http import Recorder

__all__ = ["Held", "Serve", "Served", "answer_text", "folded", "held", "record_of", "serving"]


@dataclass
class Served:
    """An embedded server, a client of it, the app, and somebody who calls the app."""

    server: LocalServer
    client: MantyxClient
    app: A2AApp
    model: Any
    caller: Caller

    def by(self, version: str) -> Caller:
        return Caller(self.app, version=version)


Serve = Callable[..., Served]


@contextlib.contextmanager
def serving() -> Iterator[Serve]:
    """Lend a function that serves an agent; everything ends with the block."""
    with contextlib.ExitStack() as stack:

        def make(turns: Any = ("Done.",), *, model: Any = None, server: Any = None, **settings: Any) -> Served:
            model = model or Recorder(turns)
            if server is None:
                server = stack.enter_context(LocalServer(model))
            client = stack.enter_context(connected(server))
            app = stack.enter_context(make_app(client, **settings))
            return Served(server, client, app, model, Caller(app))

        yield make


class Held:
    """A model that says a word, waits until it is let go, and says the rest."""

    def __init__(self, first: str = "One ", rest: str = "two.") -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()
        self.turns = [[first, Pause(self.let_go, self.reached), rest]]


def held(serve: Serve, **settings: Any) -> tuple[Held, Served]:
    holding = Held()
    return holding, serve(holding.turns, **settings)


def record_of(served: Served, task: Dict[str, Any]) -> Any:
    (service,) = served.app._services.values()
    return service._store._records[task["id"]]


def answer_text(task: Dict[str, Any]) -> str:
    (artifact,) = task["artifacts"]
    assert artifact["artifactId"] == "answer"
    (part,) = artifact["parts"]
    text: str = part["text"]
    return text


def folded(events: List[Any]) -> Fold:
    """Return what the events of a stream amount to."""
    fold = Fold()
    for wire in events:
        assert not fold.is_over
        event = read_event(wire)
        assert event is not None
        fold.feed(event)
    return fold
