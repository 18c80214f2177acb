"""How fast and how lean the client is, beside the platform's own package, a hand-written client and a bare socket.

`python -m tests.benchmarks --quick` runs every scenario in about a minute; `--help` says the rest.
"""
