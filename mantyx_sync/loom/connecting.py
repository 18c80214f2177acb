"""The ways to a Loom service: by the files of its project, by URL and token, or through a stdio proxy (loom §1)."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union
from urllib.parse import urlsplit

from ..api_errors import api_error
from ..errors import MantyxAPIError, MantyxAuthError, MantyxConfigError, MantyxNetworkError, MantyxProtocolError
from ..mcp import McpClient
from ..settings import hidden
from ..transport.auth import BearerAuth
from ..transport.direct import direct_session
from ..transport.http import HttpTransport
from ..transport.retry import RetryPolicy
from ..transport.secret import Secret
from ..transport.url import BaseURL
from .discovery import discover
from .errors import LoomDiscoveryError

__all__ = ["Path", "Way", "by_command", "by_project", "by_url"]

Path = Union[str, "os.PathLike[str]"]

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Way(NamedTuple):
    """A client, the name of its entry, and what frees everything."""

    mcp: McpClient
    entry: str
    close: Callable[[], None]


def by_project(project: Path | None, connect_timeout: float, **options: Any) -> Way:
    """Find the service of a project, and see that it is the one its files tell of.

    Raises:
        LoomDiscoveryError: There is none, or it cannot be trusted.
        MantyxAuthError: It does not take the token of the project's files.
        MantyxTimeoutError: It does not answer.
    """
    found = discover(project)
    _check_running(found.origin, found.token, connect_timeout, found.check_status)
    return by_url(f"{found.origin}/mcp", found.token, connect_timeout, **options)


def by_url(url: str, token: str, connect_timeout: float, **options: Any) -> Way:
    """Take the URL of an entry, whose name is its path."""
    token = hidden(token)  # error trackers record the locals of frames
    entry = _external_entry(url)
    headers = {"Authorization": Secret(f"Bearer {token}")}
    session, close_session = direct_session(url)
    mcp = McpClient.http(url, headers=headers, session=session, connect_timeout=connect_timeout, **options)

    def close() -> None:
        try:
            mcp.close()
        finally:
            close_session()

    return Way(mcp, entry, close)


def by_command(
    command: str | Sequence[str],
    args: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    **options: Any,
) -> Way:
    """Take the command line of a stdio proxy, which finds the service and has the credential."""
    folder = None if cwd is None else os.fspath(cwd)
    mcp = McpClient.stdio(command, args, env=env, cwd=folder, **options)
    return Way(mcp, "stdio", mcp.close)


def _external_entry(url: str) -> str:
    base = BaseURL(url, field="url")
    parts = urlsplit(url.strip())
    if parts.scheme == "http" and (parts.hostname or "").lower() not in _LOOPBACK:
        raise MantyxConfigError(f"url: got {url!r}, must be on loopback: the token would travel unprotected")
    if base.path.startswith("/internal"):
        raise MantyxConfigError(f"url: got {url!r}, must be an external entry: /mcp or /mcp/codex")
    if url.strip().endswith("/"):
        raise MantyxConfigError(f"url: got {url!r}, must not end in a slash: the service knows exact paths only")
    return base.path


def _check_running(origin: str, token: str, timeout: float, check: Callable[[Any], None]) -> None:
    session, close_session = direct_session(origin)
    transport = HttpTransport(
        BaseURL(origin),
        auth=BearerAuth(token),
        make_error=api_error,
        timeout=timeout,
        retry=RetryPolicy(max_retries=0),
        headers={},
        session=session,
    )
    try:
        check(transport.request("GET", "/_status", deadline=time.monotonic() + timeout).json())
    except MantyxAuthError:
        raise
    except (MantyxProtocolError, MantyxAPIError) as error:
        raise LoomDiscoveryError(f"what answers at {origin} is no Loom service") from error
    except MantyxNetworkError as error:
        raise LoomDiscoveryError(f"no Loom service answers at {origin}", code="offline") from error
    finally:
        transport.close()
        close_session()
