"""The keys of the embedded gateway, and who is let in with them (spacefix, "Authentication"). Does no I/O."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Mapping, Optional

from mantyx_sync import limits
from mantyx_sync.local.gateway_rates import MinuteLimit
from mantyx_sync.local.http import Request

if TYPE_CHECKING:
    from mantyx_sync.local.gateway_projects import GatewayProject

__all__ = ["KEY_KINDS", "Denied", "Key", "Keyring"]

KEY_KINDS = ("agent", "client", "full")
_CHALLENGE = 'Bearer realm="mcp"'
_INVALID = f'{_CHALLENGE}, error="invalid_token", error_description="Invalid API key."'
# Addresses with failed keys are looked through only when there are many.
_MANY_ADDRESSES = 256


class Denied(Exception):
    """A request is refused for its key, with this status, sentence and headers."""

    def __init__(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


@dataclass(eq=False)
class Key:
    """One key of a project.

    Attributes:
        kind: `agent`, `client` or `full`, which is both.
        is_read_only: For a client's key: it sees and calls only tools that change nothing.
        expires_at: When it stops working, by the gateway's clock; `None` is never.
        is_revoked: It never works again.
    """

    text: str
    kind: str
    project: GatewayProject
    is_read_only: bool = False
    expires_at: Optional[float] = None
    is_revoked: bool = False

    def works(self, now: float) -> bool:
        """Whether a request may use the key."""
        return not self.is_revoked and (self.expires_at is None or now < self.expires_at)

    def __repr__(self) -> str:
        return f"<Key {self.kind} of project {self.project.id}>"


class Keyring:
    """All keys of one gateway. The gateway's lock guards it.

    Rejected keys are counted by address; beyond the budget a rejected key gets 429 instead of 401. A key that works
    is let in all the same, so that one bad replica does not lock out the fleet it shares an address with.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._failures: dict[str, MinuteLimit] = {}

    def make(self, project: GatewayProject, kind: str, *, is_read_only: bool, expires_at: Optional[float]) -> Key:
        """Make a new key."""
        key = Key(f"sfx_{kind}_{secrets.token_hex(16)}", kind, project, is_read_only, expires_at)
        self._keys[key.text] = key
        return key

    def find(self, text: str) -> Key:
        """Return a key by its text, whether it works or not. Raises `KeyError`."""
        try:
            return self._keys[text]
        except KeyError:
            raise KeyError("the gateway never made this key") from None

    def of_project(self, project: GatewayProject) -> list[Key]:
        """Return the keys of a project, oldest first."""
        return [key for key in self._keys.values() if key.project is project]

    def admit(self, request: Request, refused: Mapping[str, str]) -> Key:
        """Return the key of a request.

        Args:
            refused: The kind of key that is not for this endpoint, with what to say to its user.

        Raises:
            Denied: There is no key, it does not work, or it is of a refused kind.
        """
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not text.strip():
            raise Denied(401, "Missing API key.", ("WWW-Authenticate", _CHALLENGE))
        now = self._clock()
        key = self._keys.get(text.strip())
        if key is None or not key.works(now):
            self._count_failure(request.peer, now)
            raise Denied(401, "Invalid API key.", ("WWW-Authenticate", _INVALID))
        if key.kind in refused:
            raise Denied(403, refused[key.kind])
        return key

    def _count_failure(self, address: str, now: float) -> None:
        if len(self._failures) > _MANY_ADDRESSES:
            self._failures = {peer: kept for peer, kept in self._failures.items() if not kept.is_idle(now)}
        budget = self._failures.setdefault(address, MinuteLimit(limits.SPACEFIX_MAX_FAILED_KEYS_PER_MINUTE))
        wait = budget.take(now)
        if wait is not None:
            raise Denied(429, "Too many failed authentication attempts.", ("Retry-After", str(wait)))
