"""Which era and version a server speaks, found out by asking: a state machine that does no I/O.

`Opening.step` says what to send: a `Probe` (`server/discover`) or an `Initialize`. What came of it is told with
`answered` or `failed`, which set the next step, until that is an `Opened` or an error is raised. No single error code
decides: old servers refuse the probe in many ways, or with silence.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence, Union

from ..errors import MantyxAPIError, MantyxError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError, cut
from .channel import Era
from .errors import McpAuthError, McpConnectionError, McpProtocolError, McpRequestError, McpVersionError
from .messages import HANDSHAKE_VERSIONS, STATELESS_VERSIONS, Code, response_result
from .models import McpServerInfo

__all__ = ["MODES", "Initialize", "Opened", "Opening", "Probe"]

MODES = ("auto", "handshake", "stateless")
"""What a caller may choose: find out, always `initialize`, or never ask first."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Probe:
    """Send `server/discover` in this stateless version."""

    version: str


@dataclass(frozen=True)
class Initialize:
    """Send `initialize` offering this version; if it succeeds, `notifications/initialized` is due."""

    version: str = HANDSHAKE_VERSIONS[0]


@dataclass(frozen=True)
class Opened:
    """The server is open: speak this version to it. `server` is `None` where it was not asked about itself."""

    era: Era
    version: str
    server: Optional[McpServerInfo] = field(default=None)


Step = Union[Probe, Initialize, Opened]


class Opening:
    """Find out how to speak to one server.

    Args:
        label: The server, for messages.
        mode: One of `MODES`.
        remembered: The era that an earlier opening found. A handshake server is asked by `initialize` at once, and
            probed again only if it refuses that.
    """

    def __init__(self, label: str, mode: str, remembered: Era | None = None) -> None:
        self._label = label
        self._is_probing_allowed = mode != "handshake"
        self._is_handshake_allowed = mode != "stateless"
        self._is_memory = mode == "auto" and remembered is Era.HANDSHAKE
        self._probes = 0
        self._probe_error: MantyxError | None = None
        self._initialize_error: MantyxError | None = None
        self.step: Step
        if mode == "handshake" or self._is_memory:
            self.step = Initialize()
        else:
            self.step = self._probe(STATELESS_VERSIONS[0])

    def answered(self, response: Mapping[str, Any]) -> None:
        """Take the response to the step.

        Raises:
            MantyxError: The server cannot be opened.
        """
        method = "server/discover" if isinstance(self.step, Probe) else "initialize"
        try:
            result = response_result(response, method, self._label)
            if isinstance(self.step, Probe):
                self.step = self._discovered(result, self.step.version)
            else:
                self.step = self._initialized(result)
        except (McpRequestError, MantyxNetworkError) as error:
            self.failed(error)

    def failed(self, error: MantyxError) -> None:
        """Take the error that the step ended with.

        Raises:
            MantyxError: The server cannot be opened.
        """
        if isinstance(self.step, Probe):
            self.step = self._after_probe(error)
        else:
            self.step = self._after_initialize(error)

    def _probe(self, version: str) -> Probe:
        self._probes += 1
        return Probe(version)

    def _discovered(self, result: Mapping[str, Any], asked: str) -> Step:
        server = McpServerInfo.of_discovery(result, asked, self._label)
        supported = result.get("supportedVersions")
        common = [version for version in STATELESS_VERSIONS if isinstance(supported, list) and version in supported]
        if result.get("resultType", "complete") != "complete" or not common:
            raise McpProtocolError(f"{self._label}: its server/discover names no version that this client speaks")
        version = asked if asked in common else common[0]
        return Opened(Era.STATELESS, version, server if version == asked else server.with_version(version))

    def _initialized(self, result: Mapping[str, Any]) -> Step:
        server = McpServerInfo.of_handshake(result, self._label)
        version = server.protocol_version
        if version not in HANDSHAKE_VERSIONS:
            raise McpVersionError(
                f"{self._label} answered initialize with protocol version {cut(version, 40)!r}; "
                f"this client speaks {', '.join(HANDSHAKE_VERSIONS)}",
                supported=[version],
            )
        return Opened(Era.HANDSHAKE, version, server)

    def _after_probe(self, error: MantyxError) -> Step:
        self._probe_error = error
        if _is_final(error):
            raise error
        if isinstance(error, McpRequestError):
            if error.rpc_code in (Code.HEADER_MISMATCH, Code.MISSING_CAPABILITY):
                raise error  # a stateless server, which dislikes our request
            if error.rpc_code == Code.UNSUPPORTED_VERSION:
                supported = _supported(error)
                ours = [version for version in STATELESS_VERSIONS if version in supported]
                if ours and self._probes < 2:
                    return self._probe(ours[0])
                if supported and not ours and all(_is_later(version) for version in supported):
                    raise self._no_common(supported, error)
        if not self._is_handshake_allowed:
            raise error
        if self._initialize_error is not None:
            raise self._both(self._initialize_error)
        return Initialize()

    def _after_initialize(self, error: MantyxError) -> Step:
        self._initialize_error = error
        if _is_final(error) or not isinstance(error, (McpRequestError, MantyxAPIError)):
            raise self._both(error)
        supported: Sequence[str] = ()
        if isinstance(error, McpRequestError) and error.rpc_code == Code.UNSUPPORTED_VERSION:
            supported = _supported(error)
        ours = [version for version in STATELESS_VERSIONS if version in supported]
        if self._is_probing_allowed and self._probes < 2:
            if ours:
                # A slow server may have seen the probe after we had given it up, and speaks stateless ever since.
                return self._probe(ours[0])
            if self._is_memory and self._probes == 0:
                return self._probe(STATELESS_VERSIONS[0])  # it spoke the handshake once: another server by now?
        if supported and not any(version in HANDSHAKE_VERSIONS for version in supported):
            raise self._no_common(supported, error)
        raise self._both(error)

    def _no_common(self, supported: Sequence[str], cause: MantyxError) -> McpVersionError:
        if not self._is_probing_allowed and any(version in STATELESS_VERSIONS for version in supported):
            advice = "; leave mode='handshake' out to speak them"
        else:
            spoken = STATELESS_VERSIONS + HANDSHAKE_VERSIONS
            advice = f"; this client speaks {', '.join(spoken)}"
        named = cut(", ".join(supported), 200)
        return McpVersionError(
            f"{self._label} supports only the protocol versions {named}{advice}", supported=supported, cause=cause
        )

    def _both(self, error: MantyxError) -> MantyxError:
        """Return the error of `initialize`, which mentions that of the probe as well."""
        if self._probe_error is None or self._probe_error is error:
            return error
        both, before = copy.copy(error), f"server/discover had failed before: {cut(self._probe_error.message, 300)}"
        if isinstance(error, McpConnectionError) and isinstance(self._probe_error, McpConnectionError):
            before = "the same had happened at server/discover"  # it died twice: its stderr need not be shown twice
        both.message = f"{error.message} ({before})"
        both.args = (both.message,)
        both.__cause__ = self._probe_error
        return both


def _is_final(error: MantyxError) -> bool:
    """Tell whether asking in another era cannot help: credentials, or no way to the server at all."""
    if isinstance(error, McpConnectionError):
        return error.sent is False
    known = (McpRequestError, MantyxProtocolError, McpVersionError, MantyxAPIError, MantyxTimeoutError)
    return isinstance(error, McpAuthError) or not isinstance(error, known)


def _supported(error: McpRequestError) -> tuple[str, ...]:
    data = error.data
    supported = data.get("supported") if isinstance(data, Mapping) else None
    return tuple(item for item in supported if isinstance(item, str)) if isinstance(supported, list) else ()


def _is_later(version: str) -> bool:
    """Tell whether a version belongs to a revision after the last one that has a handshake."""
    return _DATE.fullmatch(version) is not None and version > HANDSHAKE_VERSIONS[0]
