"""Whose code is running: the node's, or nobody's while a store works."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .node import Node

OWNER: ContextVar[Node | None] = ContextVar("loom_conformance.interleave.owner", default=None)
"""The node whose own code runs in this context. Inside a store call it is nobody, and what the
store starts there (tasks, timers, threads) is nobody's too."""
