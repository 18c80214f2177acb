"""The places where the package is used, with the real thing: kernel, browser, web servers, Celery, terminal.

They need what `tests/places/setup` installs, and run where `MANTYX_PLACES` is set.
"""
