"""`EventStream`: a run as the body of a WSGI response, an event stream that a browser reads (WHATWG HTML §9.2)."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Callable, Iterator, List, Mapping, Tuple, Union

from ..checks import kind_of, refusal, seconds, shown
from ..errors import MantyxConfigError, MantyxError, MantyxRunCancelled, MantyxRunError
from ..events import NO_SEQ, CancelledEvent, ResultEvent, RunEvent
from ..run import Run
from ..transport.sse_writing import EVENT_STREAM, HEARTBEAT, sse_event, sse_retry, stream_headers
from ..uwsgi_threads import THREADS_ARE_OFF, threads_are_off
from .ending import is_over, note_open
from .errors import public_error, public_failure
from .finishing import finish
from .places import Place, resume_from
from .shown import Show, check_show

if TYPE_CHECKING:
    from typing_extensions import Literal

    from ..client import MantyxClient

    OnDisconnect = Literal["cancel", "finish"]

__all__ = ["EventStream"]

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""How long an `EventSource` waits before it comes back after a stream that broke off."""
CANCEL_TIMEOUT_S = 2.0
"""How long the server may take to note that a run is to stop: nobody waits for the thread that asks it."""
LOOK_S = 1.0
"""How often a quiet stream looks whether the process is to end."""


class EventStream:
    """An iterator over the pieces of a response's body: a run's events, for a browser to read as they happen.

        stream = EventStream(lambda: client.stream_agent(agent_id="…", prompt=text))
        return flask.Response(stream, headers=stream.headers)                     # Flask
        return StreamingHttpResponse(stream, headers=stream.headers)              # Django
        start_response("200 OK", stream.headers); return stream                   # any WSGI server

    Nothing is opened before the server asks for the second piece: the first goes out at once and brings the headers on
    their way. Then come `run`, whose data is `{"runId": …}`, with `sessionId` if the run is a session's; the run's
    events, each under its own type with the members of its data that `show` lets through; and at the end `result`,
    `error` or `cancelled`, always one of them. After `heartbeat` seconds of silence there is a comment: writing it is
    how a server notices that its browser has gone. The server calls `close` then, which cancels the run, or lets it
    finish. While `start` is at work, connecting tools for example, nothing is written.

    What `start` raises, and what goes wrong later, is an `error` event with a public sentence: the status line is out.
    To answer with a status, start the run in the view and give it in place of `start`; `public_error` turns an error
    into that answer. Where only the server's log knows more, it is there.

    Every event has an `id`, `<run>/<seq>`, which an `EventSource` sends back as `Last-Event-ID`: `resume_from` reads it
    and `EventStream.attach` goes on from there.

    Used by one thread at a time, on which `start` and `show` are called; `close` may be called from any.
    """

    media_type = EVENT_STREAM

    def __init__(
        self,
        start: Union[Callable[[], Run], Run],
        *,
        on_disconnect: OnDisconnect = "cancel",
        heartbeat: float = 15.0,
        finish_timeout: float = 600.0,
        show: Show = "public",
    ) -> None:
        """Check the arguments; opens nothing.

        Args:
            start: Starts the run, with `stream_agent`, `session.stream` or `start_agent`; or the run.
            on_disconnect: What becomes of the run when the browser leaves before its end: `cancel` has the server stop
                it. With `finish` it goes on, and this process answers its tools until its end.
            heartbeat: Seconds of silence after which there is a comment.
            finish_timeout: Seconds a run may go on without its browser; then it is cancelled.
            show: Which events are sent and what of them: `public`, `all`, or a function from an event to the JSON
                object to send, `None` for nothing. `public` is `public_data`: the arguments and results of tools, the
                model's reasoning and the platform's words about failures stay here.

        Raises:
            MantyxConfigError: An argument is not allowed, or this is uWSGI without threads.
        """
        if not callable(start) and not isinstance(start, Run):
            raise refusal("start", kind_of(start), "be a function that returns a Run, or a Run")
        if on_disconnect not in ("cancel", "finish"):
            raise refusal("on_disconnect", shown(on_disconnect), "be 'cancel' or 'finish'")
        self._heartbeat = seconds(heartbeat, "heartbeat")
        self._finish_timeout = seconds(finish_timeout, "finish_timeout")
        self._view = check_show(show)
        if threads_are_off():
            raise MantyxConfigError(THREADS_ARE_OFF, code="threads_off")
        self._start = start
        self._on_disconnect = on_disconnect
        self._is_follower = False
        self._last_seq = 0
        # Those that are to be released: one at most. A list, since taking from one is one step for all threads.
        self._held: List[Run] = []
        self._closing: List[bool] = []  # as many as there are threads in `close`
        self._is_starting = False
        self._events: Iterator[RunEvent | None] | None = None
        self._run_id: str | None = None
        self._has_begun = False
        self._is_over = False
        self._sent_at = 0.0
        if isinstance(start, Run):
            self._held.append(start)
            note_open(self)

    @classmethod
    def attach(
        cls,
        client: MantyxClient,
        run_id: str,
        last_seq: int = 0,
        *,
        on_disconnect: OnDisconnect = "cancel",
        heartbeat: float = 15.0,
        show: Show = "public",
    ) -> EventStream:
        """Return a stream that goes on where a browser left, or shows a run from its start. Opens nothing.

        It answers no tools: whoever started the run does, in this process or in another, and no tool runs twice.

        Args:
            client: The workspace.
            run_id: The run. Look whether it is the user's own before you show it.
            last_seq: Events up to this one are passed by; from `resume_from`, or 0.
            on_disconnect: With `finish`, leaving this stream changes nothing for the run.
            heartbeat: As for every stream.
            show: As for every stream.
        """
        stream = cls(
            lambda: client.attach_run(run_id, last_seq=last_seq),
            on_disconnect=on_disconnect,
            heartbeat=heartbeat,
            show=show,
        )
        stream._is_follower = True
        stream._last_seq = last_seq
        return stream

    def __repr__(self) -> str:
        state = "over" if self._is_over else "open" if self._events is not None else "not begun"
        return f"<EventStream of {self._run_id or 'a run to come'}, {state}>"

    @property
    def headers(self) -> List[Tuple[str, str]]:
        """The headers of the response: nothing may keep, compress or hold back the pieces."""
        # Middleware that compresses leaves alone what has a Content-Encoding already: Django's looks at nothing else.
        return [*stream_headers("utf-8"), ("Content-Encoding", "identity")]

    @property
    def is_free(self) -> bool:
        """True if it holds nothing: it has not begun, or is over and done with."""
        return not (self._is_starting or self._held or self._closing)

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> bytes:
        if self._is_over:
            raise StopIteration
        try:
            piece = self._next()
        except Exception as error:
            piece = self._failed(error)
        except BaseException:  # the worker is told to end, or its greenlet is killed: nobody will read on
            self.close()
            raise
        if piece is None:
            self.close()
            raise StopIteration
        self._sent_at = time.monotonic()
        return piece

    def close(self) -> None:
        """Free everything; cancel a run that goes on, or let it finish. The server calls this at the body's end.

        Blocks while the platform is asked to cancel, a few seconds if it does not answer. Any thread may call it, and
        more than once.
        """
        self._is_over = True
        self._closing.append(True)
        try:
            run = self._take()
            if run is None:
                return
            if run.is_over:
                run.close()
            elif self._on_disconnect == "cancel":
                run.abort(CANCEL_TIMEOUT_S)
            elif self._is_follower:
                run.let_go()
            else:
                finish(run, self._start, self._finish_timeout)
        finally:
            self._closing.pop()

    def let_go(self) -> None:
        """Free everything without waiting; the server is told nothing, the run goes on."""
        self._is_over = True
        run = self._take()
        if run is not None:
            run.let_go()

    def _next(self) -> bytes | None:
        if not self._has_begun:
            self._has_begun = True
            return sse_retry(RETRY_S)
        if self._events is None:
            return self._begin()
        while True:
            now = time.monotonic()
            if is_over(now):
                return self._broken_off()
            if now - self._sent_at >= self._heartbeat:
                return HEARTBEAT
            try:
                event = next(self._events)
            except StopIteration:
                return self._ended()
            piece = None if event is None else self._write(event)
            if piece is not None:
                return piece

    def _begin(self) -> bytes | None:
        if is_over(time.monotonic()):
            return self._broken_off()
        run = self._started()
        self._run_id = run.run_id
        self._events = run.poll(min(self._heartbeat, LOOK_S))
        about = {"runId": run.run_id}
        if run.session_id is not None:
            about["sessionId"] = run.session_id
        return sse_event(about, event="run", event_id=self._place(self._last_seq))

    def _started(self) -> Run:
        start = self._start
        if isinstance(start, Run):
            return start
        self._is_starting = True
        note_open(self)
        try:
            run = start()
            if not isinstance(run, Run):
                raise TypeError(f"start must return a Run, not {kind_of(run)}")
            self._held.append(run)
        finally:
            self._is_starting = False
        if self._is_over:  # closed meanwhile, by another thread
            self.close()
        return run

    def _take(self) -> Run | None:
        try:
            return self._held.pop()
        except IndexError:
            return None

    def _write(self, event: RunEvent) -> bytes | None:
        data = self._view(event)
        if data is None and not event.is_terminal:
            return None
        if data is not None and not isinstance(data, Mapping):
            raise TypeError(f"show must return a mapping or None, not {kind_of(data)}")
        place = self._place(event.seq) if event.seq > 0 else None
        piece = sse_event(dict(data or {}), event=event.type, event_id=place)
        if event.is_terminal:  # behind the line above: of an end that cannot be written the browser hears as well
            self.close()
        return piece

    def _place(self, seq: int) -> str | None:
        """Return what the browser is to come back with; nothing that would not be taken then."""
        assert self._run_id is not None, "there are events of a run that has begun"
        place = str(Place(self._run_id, seq))
        return place if resume_from(place) is not None else None

    def _ended(self) -> bytes | None:
        """The events have ended; where no terminal one was among them, say how the run did."""
        run = None if self._is_over else self._take()
        if run is None:
            return None
        self._held.append(run)
        try:
            result = run.result()
        except MantyxRunCancelled as error:
            return self._write(CancelledEvent(NO_SEQ, "cancelled", {"reason": error.reason}, reason=error.reason))
        except MantyxRunError as error:
            self.close()
            return sse_event(public_error(error)[1], event="error")
        data = {"subtype": result.subtype, "text": result.text}
        return self._write(ResultEvent(NO_SEQ, "result", data, text=result.text, subtype=result.subtype))

    def _broken_off(self) -> bytes | None:
        """The process is to end. A run that may finish is followed elsewhere: the browser comes back by itself."""
        has_run = bool(self._held)
        self.close()
        if has_run and self._on_disconnect == "finish":
            return None
        sentence = "The server is being restarted; try again in a moment."
        return sse_event(public_failure(sentence, "shutting_down", retryable=True), event="error")

    def _failed(self, error: Exception) -> bytes | None:
        was_over = self._is_over
        if not isinstance(error, MantyxError):
            log.error("the stream of run %s broke off", self._run_id, exc_info=error)
        elif not was_over:
            log.warning("the stream of run %s ended with an error: %s", self._run_id, error)
        self.close()
        return None if was_over else sse_event(public_error(error)[1], event="error")
