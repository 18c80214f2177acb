"""`ReplayServer`: a recorded server, played back byte for byte, that says when its client asks for something else."""

from __future__ import annotations

import json
import os
import time
from typing import Callable, Iterable, Union
from urllib.parse import parse_qsl

from mantyx_sync.local.answers import Answer, read_last_seq
from mantyx_sync.local.api_server import ApiServer, ClientSettings
from mantyx_sync.local.faults import Effect, Fault
from mantyx_sync.local.frames import PieceLog
from mantyx_sync.local.http import Request, Response, json_response
from mantyx_sync.local.lookup import Requests
from mantyx_sync.local.loop import Timer
from mantyx_sync.local.matching import Asked, Comparison, short_path, without_slug
from mantyx_sync.local.playback import Plan, Tape
from mantyx_sync.local.playing import Playing
from mantyx_sync.local.recording import Exchange, decode_body, read_recording
from mantyx_sync.local.redaction import SLUG
from mantyx_sync.reprs import dataclass

__all__ = ["ReplayServer", "UnmatchedRequest"]

API_KEY = "replayed"


@dataclass(frozen=True)
class UnmatchedRequest:
    """A request that is not the one that was recorded; `str` of it says what is different."""

    method: str
    path: str
    why: str

    def __str__(self) -> str:
        return self.why


class ReplayServer(ApiServer):
    """Play back what `RecordingServer` has recorded, over HTTP on loopback.

        with ReplayServer("tests/recordings/order.jsonl") as replay:
            client = MantyxClient(**replay.client_settings())
            …
            replay.assert_all_used()

    Answers are those of the recording, byte for byte and piece by piece: errors, 429s, event streams and connections
    that broke off; only a `Retry-After` is shortened as all pauses are. Requests are told apart by method, path, query
    and body; the same request is answered in the order in which it was recorded, different ones in any. A stream waits
    where it had waited for the result of a tool or for a cancellation. A stream that breaks, by a fault say, can be
    resumed behind any event, and its run be asked how it
    stands. Any credential and any workspace will do.

    A request that was not recorded gets status 400 with the differences; if it was the result of a tool, its run ends
    with that error, too. They are kept in `unmatched`. A server that is started again plays from the beginning.

    All methods may be called from any thread. Recordings of a SpaceFix gateway cannot be made or played.

    Args:
        path: The recording.
        speed: How many times as fast as it was; infinity leaves out all pauses, 1 keeps them.
        max_gap: Pauses are cut to so many seconds.
        ignore: Places of a request that may be different, with dots, such as `metadata.trace_id`,
            `tools.*.description` or `query.limit`.
        redact: The function that the recording was made with, if there was one.
        host: A loopback address.
        port: The port; 0 takes a free one.
        faults: Faults from the start; more can be added to `faults` later.

    Raises:
        RecordingError: The file is missing, damaged, cut short, or of a newer version. It is a `ValueError`.
        ValueError: Another argument is not allowed.
    """

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        speed: float = float("inf"),
        max_gap: float | None = None,
        ignore: Iterable[str] = (),
        redact: Callable[[str], str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: Iterable[Union[Fault, Effect]] | None = None,
    ) -> None:
        super().__init__(host=host, port=port, faults=faults, heartbeat=None)
        if not speed > 0:
            raise ValueError(f"speed: got {speed!r}, must be a number above 0")
        if max_gap is not None and not max_gap >= 0:
            raise ValueError(f"max_gap: got {max_gap!r}, must be a number of seconds, 0 or above")
        if isinstance(ignore, str):
            raise ValueError(f"ignore: got {ignore!r}, must be a list of places")
        self.path = os.fspath(path)
        self._speed = speed
        self._max_gap = max_gap
        self._ignore = tuple(ignore)
        self._redact = redact
        self._tape = Tape(read_recording(path))
        self._requests = Requests(self._tape.exchanges, self._ignore)
        self._rewind()

    def __repr__(self) -> str:
        where = self.url if self._port is not None else "stopped"
        return f"<ReplayServer {where} of {self.path!r}>"

    def _rewind(self) -> None:
        self.unmatched: list[UnmatchedRequest] = []
        """The requests that did not fit, in the order in which they came."""
        self._requests.rewind()
        self._arrived: dict[int, float] = {}
        self._renamed: dict[str, str] = {}
        self._refused: dict[tuple[str, str], str] = {}  # by route: what was wrong with a request for it
        self._playing: list[Playing] = []
        self._answers = 0

    def start(self) -> ReplayServer:
        """Listen and play, from the beginning. Starting it twice changes nothing."""
        if self._port is None:
            self._rewind()
        return super().start()

    # ----------------------------------------------------------------------- for clients and tests

    def client_settings(self) -> ClientSettings:
        """Return the arguments that point a `MantyxClient` at this server."""
        return {"base_url": self.url, "api_key": API_KEY, "workspace_slug": SLUG}

    @property
    def unused(self) -> list[str]:
        """What was recorded and has not been asked for, as `METHOD path (line …)`."""
        return [_name(exchange) for exchange in self._tape.exchanges if not self._requests.is_used(exchange)]

    @property
    def waiting_for(self) -> list[str]:
        """The requests that streams are waiting for, since they came before what follows when it was recorded."""
        needed = {number for playing in tuple(self._playing) for number in playing.missing}
        return [_name(self._tape.at(number)) for number in sorted(needed)]

    def assert_all_used(self) -> None:
        """Check that all that was recorded was asked for, and nothing else.

        Raises:
            AssertionError: It was not; the text says what is missing or different.
        """
        if self.unmatched:
            more = len(self.unmatched) - 1
            raise AssertionError(str(self.unmatched[0]) + (f"\n({more} more did not fit)" if more else ""))
        unused = self.unused
        if unused:
            listed = "".join(f"\n  {line}" for line in unused)
            raise AssertionError(f"{self.path}: recorded, but not asked for:{listed}")

    # ------------------------------------------------------------------------------------ requests

    def _handle(self, request: Request) -> Answer:
        try:
            asked = self._read(request)
        except Exception as error:  # `redact` is the caller's
            asked = Asked(request.method, without_slug(request.target.partition("?")[0]), {}, None)
            return self._refuse_with(asked, f"{asked}: redact failed with {type(error).__name__}: {error}")
        if asked.method == "GET" and asked.path.endswith("/stream"):
            return self._open_stream(asked, read_last_seq(request))
        exchange, comparison = self._requests.find(asked)
        if exchange is None:
            return self._snapshot(asked) or self._refuse_unmatched(asked, comparison)
        self._renamed.update(comparison.renamed if comparison is not None else {})
        answer = self._play(self._tape.plan(exchange, self._renamed))
        self._use(exchange)
        return answer

    def _read(self, request: Request) -> Asked:
        path, _, query = request.target.partition("?")
        body = decode_body(request.body, request.headers)
        if body is not None and self._redact is not None and body[0] != "base64":
            text = body[1] if body[0] == "text" else json.dumps(body[1], ensure_ascii=False)
            changed = self._redact(text)
            body = (body[0], changed if body[0] == "text" else json.loads(changed))
        values: dict[str, list[str]] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            values.setdefault(name, []).append(value)
        return Asked(request.method, without_slug(path), values, body)

    def _open_stream(self, asked: Asked, last_seq: int) -> Answer:
        for exchange in self._requests.unused_of(asked):
            if _last_seq(exchange) == last_seq:
                answer = self._play(self._tape.plan(exchange, self._renamed))
                self._use(exchange)
                return answer
        plan = self._tape.resumed(asked.path, last_seq, self._renamed)
        if plan is None:
            return self._refuse_unmatched(asked, None)
        # Opened elsewhere than it was: the places where it was opened then will hardly be asked for.
        for exchange in self._requests.unused_of(asked):
            if exchange.is_stream:
                self._requests.use(exchange)
        return self._play(plan)

    def _snapshot(self, asked: Asked) -> Response | None:
        """Tell how a run stands whose stream was recorded: a client asks when its stream breaks."""
        if asked.method != "GET":
            return None
        stream = f"{asked.path}/stream"
        snapshot = self._tape.snapshot(stream, lambda needs: all(number in self._arrived for number in needs))
        return None if snapshot is None else json_response(200, snapshot)

    def _use(self, exchange: Exchange) -> None:
        self._requests.use(exchange)
        self._arrived[exchange.number] = time.monotonic()
        for playing in tuple(self._playing):
            playing.go_on()

    def _refuse_unmatched(self, asked: Asked, closest: Comparison | None) -> Response:
        return self._refuse_with(asked, self._explain(asked, closest))

    def _refuse_with(self, asked: Asked, why: str) -> Response:
        self.unmatched.append(UnmatchedRequest(asked.method, short_path(asked.path), why))
        self._refused.setdefault((asked.method, asked.path), why)
        for playing in tuple(self._playing):
            playing.go_on()
        return json_response(400, {"error": "replay_mismatch", "code": "replay_mismatch", "message": why})

    def _explain(self, asked: Asked, closest: Comparison | None) -> str:
        if closest is not None:
            return f"{asked} is not what was recorded in line {closest.line} of {self.path}:\n{closest}"
        same = self._requests.of_route(asked)
        if same:
            times = "once" if len(same) == 1 else f"{len(same)} times"
            return f"{asked} was recorded {times} in {self.path}, and has been asked for once more"
        open_ones = self.unused
        left = "".join(f"\n  {line}" for line in open_ones[:8]) or " nothing"
        return f"{asked} was not recorded in {self.path}; what was, and is still to come:{left}"

    # ------------------------------------------------------------------------------------- playing

    def _play(self, plan: Plan) -> Answer:
        self._answers += 1
        playing = Playing(self, plan, f"replay-{self._answers}")
        self._playing.append(playing)
        return playing.begin()

    def pause(self, gap: float) -> float:
        """Return how long a recorded pause is now, in seconds."""
        shortened = gap / self._speed
        return shortened if self._max_gap is None else min(shortened, self._max_gap)

    def arrived(self, number: int) -> float | None:
        """Return when a recorded request came, on the monotonic clock; `None` if it has not yet."""
        return self._arrived.get(number)

    def hopeless(self, numbers: Iterable[int]) -> str | None:
        """Return why requests that a stream waits for will not come, if one came that was another."""
        for number in numbers:
            exchange = self._tape.at(number)
            why = self._refused.get((exchange.method, without_slug(exchange.path)))
            if why is not None:
                return why
        return None

    def overdue(self, numbers: Iterable[int]) -> str | None:
        """Return what a stream has waited for in vain; `None` for results, as tools may take any time."""
        awaited = [self._tape.at(number) for number in numbers]
        if any(exchange.path.endswith("/tool-results") for exchange in awaited):
            return None
        return f"waits for what came here when it was recorded: {', '.join(map(_name, awaited))}"

    def forget(self, playing: Playing) -> None:
        """Take notice that an answer is over."""
        if playing in self._playing:
            self._playing.remove(playing)

    def call_at(self, when: float, function: Callable[[], None]) -> Timer:
        """Have a function called on the socket loop's thread."""
        return self._loop.call_at(when, function)

    def grown(self, log: PieceLog) -> None:
        """Tell the socket loop that there is more to send."""
        self._loop.run_changed(log)

    # -------------------------------------------------------------------------------------- insides


def _last_seq(exchange: Exchange) -> int:
    """Return where a recorded request asked a stream to go on."""
    given = [value for name, value in exchange.query if name == "lastSeq"]
    given += [value for name, value in exchange.headers.items() if name.lower() == "last-event-id"]
    return max((int(text) for text in given if text.isascii() and text.isdigit()), default=0)


def _name(exchange: Exchange) -> str:
    return f"{exchange.method} {short_path(exchange.path)} (line {exchange.order})"
