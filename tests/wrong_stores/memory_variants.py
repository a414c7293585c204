"""Correct stores that differ from the reference: all of them must pass."""

from __future__ import annotations

from loom_backends.memory import MemoryEventStore

from .memory_base import correct_memory


@correct_memory("reference")
class Reference(MemoryEventStore):
    """The reference store as it is."""
