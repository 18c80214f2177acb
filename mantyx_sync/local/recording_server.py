"""`RecordingServer`: stands between a client and the real server, and writes down what they say to each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Iterable, Union

from mantyx_sync.local.answers import Answer
from mantyx_sync.local.api_server import ApiServer, ClientSettings
from mantyx_sync.local.faults import Effect, Fault
from mantyx_sync.local.http import Request
from mantyx_sync.local.notes import Notes
from mantyx_sync.local.recording import check_target, write_recording
from mantyx_sync.local.redaction import SLUG, Redactor
from mantyx_sync.local.relaying import API_KEY, Relay, Upstream

if TYPE_CHECKING:
    import requests

__all__ = ["RecordingServer"]


class RecordingServer(ApiServer):
    """Forward every request to the real server, pass its answer back piece by piece, and record both to a file.

        with RecordingServer("tests/recordings/order.jsonl") as server:
            client = MantyxClient(**server.client_settings())
            …

    Point any client at it: this package's, the platform's own, curl. It gives `client_settings` and never sees the
    real credential; one that it brings along itself is forwarded. The file is written by `stop`, at the end of the
    `with` block, or by `save`; `ReplayServer` plays it.

    **No secrets** get into the file. Of a request's headers three are kept (`Accept`, `Content-Type`,
    `Last-Event-ID`); credentials, cookies, the headers of tools that the platform dials, fields such as
    `client_secret` or `password`, and what looks like a token are replaced, and what was found once is replaced
    everywhere, in answers and prompts as well, in base64 too, and in words that a stream brings in parts. The
    workspace's slug is replaced in addresses. Prompts and answers are content: name what else must not be in the file
    in `secrets`, or take it out with `redact`.

    Where the connection to the real server breaks, the client's breaks as well, and that is recorded. Where none can
    be made, the client gets a 502 that says so. All methods may be called from any thread. It does not stand before a
    SpaceFix gateway.

    Args:
        path: The file. One that exists is replaced, at the end.
        api_key: As for `MantyxClient`, from the environment as well: who asks the real server.
        access_token: Likewise.
        token_source: Likewise.
        workspace_slug: Likewise.
        base_url: Likewise: where the real server is.
        session: A `requests.Session` of yours, for proxies or certificates that the environment does not name.
        secrets: Further strings that are to appear nowhere.
        redact: A function from text to text that takes out what only you know. It gets the JSON or text of each
            request, and of each answer or event of a stream, and has to leave JSON JSON; and the words of a stream
            put together, since a model may say a name in two events.
        host: A loopback address.
        port: The port; 0 takes a free one.
        faults: Faults between the client and this server; more can be added to `faults` later.

    Raises:
        MantyxConfigError: A setting of the real server is missing or not allowed.
        ValueError: Another argument is not allowed.
    """

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        api_key: str | None = None,
        access_token: str | None = None,
        token_source: Any = None,
        workspace_slug: str | None = None,
        base_url: str | None = None,
        session: requests.Session | None = None,
        secrets: Iterable[str] = (),
        redact: Callable[[str], str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: Iterable[Union[Fault, Effect]] | None = None,
    ) -> None:
        super().__init__(host=host, port=port, faults=faults, heartbeat=None)
        # Imported here: the embedded servers do without requests, and only this one asks another server.
        from mantyx_sync.settings import hidden, read_credentials

        credentials = read_credentials(hidden(api_key), hidden(access_token), token_source, workspace_slug, base_url)
        if isinstance(secrets, str):
            raise ValueError("secrets: got a string, must be a list of strings")
        self.path = os.fspath(path)
        self._slug = credentials.workspace_slug
        told = tuple(secrets)
        self._secrets: Callable[[], list[str]] = lambda: [*told, credentials.reveal()]  # in no dump of this object
        self._redact = redact
        self._upstream = Upstream(credentials, session, lambda token: self._notes.credential(token))
        self._notes = Notes()
        self._is_discarded = True

    def __repr__(self) -> str:
        where = self.url if self._port is not None else "stopped"
        return f"<RecordingServer {where} to {self.path!r}>"

    # ------------------------------------------------------------------------------------ lifetime

    def start(self) -> RecordingServer:
        """Listen and record, from nothing. Starting it twice changes nothing.

        Raises:
            OSError: The port cannot be had, or there can be no file at the path.
        """
        if self._port is None:
            check_target(self.path)  # now: at the end, what it cost would be lost
            self._notes = Notes()
            super().start()
            self._is_discarded = False
        return self

    def stop(self) -> None:
        """Close everything, and write the file unless `discard` was called."""
        super().stop()
        self._upstream.close()
        if not self._is_discarded:
            self._is_discarded = True
            self.save()

    def save(self) -> None:
        """Write what was recorded so far; of what goes on at the moment, as much as has come.

        Raises:
            OSError: The file cannot be written.
        """
        exchanges, credentials = self._notes.taken()
        redactor = Redactor([*self._secrets(), *credentials], slugs=[self._slug], redact=self._redact)
        for exchange in exchanges:
            redactor.learn(exchange)
        write_recording(self.path, [redactor.clean(exchange) for exchange in exchanges])

    def discard(self) -> None:
        """Have `stop` write no file."""
        self._is_discarded = True

    # ------------------------------------------------------------------------------------- clients

    def client_settings(self) -> ClientSettings:
        """Return the arguments that point a `MantyxClient` at this server; they hold no secret."""
        return {"base_url": self.url, "api_key": API_KEY, "workspace_slug": SLUG}

    @property
    def recorded(self) -> int:
        """How many requests have come so far."""
        return len(self._notes)

    # ------------------------------------------------------------------------------------- insides

    def _handle(self, request: Request) -> Answer:
        relay = Relay(self._upstream, self._loop, self._notes, request)
        self._workers.run(relay.forward)
        return relay.later

    def _loop_ended(self) -> None:
        self._notes.release_all()
