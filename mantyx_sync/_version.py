"""The version, said once: packaging and the User-Agent header both read it here."""

__version__ = "0.1.0"
