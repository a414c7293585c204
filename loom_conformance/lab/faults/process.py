"""Faults that a process lives under from its start: what it may not do, and how much."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final

NOBODY: Final = 65534


def limit_child(limits: Mapping[str, Any]) -> None:
    """Put this process under limits, for as long as it lives.

    Args:
        limits: `{"user": uid}` gives up root for that user, so that file permissions count;
            `{"pages": n}` lets SQLite databases that are opened from now on grow by at most `n`
            pages, after which writes fail with SQLITE_FULL.
    """
    if "user" in limits and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(limits["user"])
        os.setuid(limits["user"])
    if "pages" in limits:
        _limit_pages(limits["pages"])


def _limit_pages(spare: int) -> None:
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def limited(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + spare}")
        return connection

    setattr(sqlite3, "connect", limited)  # noqa: B010 - the overloads do not matter here
