"""Where the examples run: on the platform if the environment names an account, else on an embedded server."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Iterator

from mantyx_sync import MantyxClient

if TYPE_CHECKING:
    from mantyx_sync.local import Model


@contextlib.contextmanager
def connect(model: Model | None = None) -> Iterator[MantyxClient]:
    """Lend a client, for a `with` block. `model` is what the embedded server uses instead of its rule model."""
    if os.environ.get("MANTYX_API_KEY") or os.environ.get("MANTYX_ACCESS_TOKEN"):
        with MantyxClient() as client:
            yield client
        return
    from mantyx_sync.local import LocalServer

    with LocalServer(model) as server, MantyxClient(**server.client_settings()) as client:
        print(f"(no MANTYX_API_KEY: using the embedded server at {server.url})\n")
        yield client
