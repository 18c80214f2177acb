"""The version, said once: packaging and the User-Agent header both read it here."""

__all__ = ["SDK_VERSION", "__version__"]

__version__ = "0.1.0"
SDK_VERSION = __version__
