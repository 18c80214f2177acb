"""The client that commands work with: settings of the environment, options, or an embedded server."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from typing import TYPE_CHECKING, Any, Iterator, NoReturn, Optional, Sequence, Union

from .loading import Unusable

if TYPE_CHECKING:
    from ..client import MantyxClient

__all__ = ["NO_ACCOUNT", "add_client_options", "connect", "read_key", "refuse_keys"]

ENVIRONMENT = """\
environment:
  MANTYX_API_KEY (or MANTYX_ACCESS_TOKEN), MANTYX_WORKSPACE_SLUG, MANTYX_BASE_URL,
  MANTYX_LOG (debug, info, warning, error), NO_COLOR
"""

NO_ACCOUNT = (
    "no account is set: set MANTYX_API_KEY and MANTYX_WORKSPACE_SLUG, or give --api-key-file and --workspace. "
    "Without an account, `mantyx-sync run --local` and `chat --local` use an embedded server with a small rule model"
)


_KEY = re.compile(r"[A-Za-z0-9_+=-]{16,}")


class _NoKeyHere(argparse.Action):
    """Refuses a key on the command line, without repeating it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - the form of an action
        values: Union[str, Sequence[Any], None],  # noqa: ARG002
        option_string: Optional[str] = None,
    ) -> NoReturn:
        parser.error(
            f"{option_string} is refused: every user of this machine can read the arguments of a process, and shells "
            "keep them. Set MANTYX_API_KEY, or give --api-key-file FILE; replace the key if it was a real one"
        )


def add_client_options(parser: argparse.ArgumentParser, *, with_local: bool = False) -> None:
    """Add the options that say which server and workspace it is."""
    group = parser.add_argument_group("connection")
    group.add_argument("--workspace", metavar="SLUG", help="the workspace (default: MANTYX_WORKSPACE_SLUG)")
    group.add_argument("--base-url", metavar="URL", help="the server (default: MANTYX_BASE_URL, else the platform)")
    group.add_argument("--api-key-file", metavar="FILE", help="a file that holds the key (default: MANTYX_API_KEY)")
    refuse_keys(group)
    if with_local:
        group.add_argument(
            "--local",
            action="store_true",
            help="need no account: an embedded server with a small rule model that uses tools but knows nothing",
        )
    parser.set_defaults(local=False)


def refuse_keys(parser: argparse._ActionsContainer) -> None:
    """Refuse options that would hold a key."""
    parser.add_argument("--api-key", "--access-token", "--token", action=_NoKeyHere, help=argparse.SUPPRESS)


@contextlib.contextmanager
def connect(options: argparse.Namespace) -> Iterator[MantyxClient]:
    """Make the client for a command, and close it behind it; with `--local` a server as well.

    Raises:
        Unusable: There is no account, or the file with the key cannot be used.
    """
    if options.local:
        with _local(options) as client:
            yield client
        return
    for name in ("workspace", "base_url"):
        if getattr(options, name) == "":  # a variable of the shell's that is not set, mostly
            raise Unusable(f"--{name.replace('_', '-')} is empty")
    key = read_key(options.api_key_file)
    has_key = key or os.environ.get("MANTYX_API_KEY") or os.environ.get("MANTYX_ACCESS_TOKEN")
    if not has_key and not (options.workspace or os.environ.get("MANTYX_WORKSPACE_SLUG")):
        raise Unusable(NO_ACCOUNT)
    if not has_key:
        raise Unusable("no key is set: set MANTYX_API_KEY, or give --api-key-file")
    if not (options.workspace or os.environ.get("MANTYX_WORKSPACE_SLUG")):
        raise Unusable("no workspace is set: set MANTYX_WORKSPACE_SLUG, or give --workspace")
    from ..client import MantyxClient

    with MantyxClient(
        api_key=key, workspace_slug=options.workspace, base_url=options.base_url, app_info="cli"
    ) as client:
        yield client


@contextlib.contextmanager
def _local(options: argparse.Namespace) -> Iterator[MantyxClient]:
    for name in ("workspace", "base_url", "api_key_file"):
        if getattr(options, name) is not None:
            raise Unusable(f"--{name.replace('_', '-')} has no place beside --local, which needs no account")
    from ..client import MantyxClient
    from ..local import LocalServer, RuleModel

    with LocalServer(RuleModel(word_delay=0.02)) as server, MantyxClient(**server.client_settings()) as client:
        yield client


def read_key(path: str | None) -> str | None:
    """Return the key that stands in a file; `None` where no file is given.

    Raises:
        Unusable: It cannot be read, or is empty.
    """
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            key = file.read(65_536).strip()
    except (OSError, UnicodeDecodeError) as error:
        # A key in place of a file that holds it is not repeated: logs keep what is printed.
        shown = "the file that is named" if _KEY.fullmatch(path) else repr(path)
        raise Unusable(f"--api-key-file: {shown} cannot be read: {getattr(error, 'strerror', 'no text')}") from None
    if not key:
        raise Unusable(f"--api-key-file: {path!r} is empty, must hold the key")
    from ..settings import hidden

    masked: str = hidden(key)
    return masked
