"""`python -m mantyx_sync`: the command line."""

from __future__ import annotations

import sys

from mantyx_sync.cli import main

if __name__ == "__main__":
    sys.exit(main())
