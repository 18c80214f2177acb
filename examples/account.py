"""Where the examples run: on the platform if the environment names an account, else on an embedded server."""

import contextlib
import os
from typing import Iterator

from mantyx_sync import MantyxClient


@contextlib.contextmanager
def connect() -> Iterator[MantyxClient]:
    """Lend a client, for a `with` block."""
    if os.environ.get("MANTYX_API_KEY") or os.environ.get("MANTYX_ACCESS_TOKEN"):
        with MantyxClient() as client:
            yield client
        return
    from mantyx_sync.local import LocalServer

    with LocalServer() as server, MantyxClient(**server.client_settings()) as client:
        print(f"(no MANTYX_API_KEY: using the embedded server at {server.url})\n")
        yield client
