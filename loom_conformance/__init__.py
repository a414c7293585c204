"""A pytest plugin that finds out what an event store really does."""

from .backend import Backend
from .spi import EventEnvelope, EventStore

__all__ = ["Backend", "EventEnvelope", "EventStore", "conformance"]


def __getattr__(name: str) -> object:
    """Load the suites only where they are asked for: stores import this package too."""
    if name == "conformance":
        from .suites import conformance

        return conformance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
