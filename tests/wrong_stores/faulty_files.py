"""Stores that pretend when the file under them fails."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from loom_conformance.spi import EventStoreError

from .faulty_base import PlainStore, Row, faulty


@faulty("swallows-a-full-disk", load=False)
class SwallowsAFullDisk(PlainStore):
    """Notes that the disk is full, and acknowledges all the same."""

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except EventStoreError as error:
            if "full" not in str(error):
                raise


@faulty("falls-back-to-memory", load=False)
class FallsBackToMemory(PlainStore):
    """Goes on in memory where it may not write the file."""

    def _connected(self, path: str) -> sqlite3.Connection:
        try:
            return super()._connected(path)
        except EventStoreError as error:
            if "readonly" not in str(error) and "unable to open" not in str(error):
                raise
            if not Path(path).exists():
                raise
            return super()._connected(":memory:")

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            await super()._write(rows)
        except EventStoreError as error:
            if "readonly" not in str(error):
                raise
            self.connection.close()
            self.connection = super()._connected(":memory:")
            await super()._write(rows)


@faulty("sets-a-broken-file-aside", load=False)
class SetsABrokenFileAside(PlainStore):
    """Renames a file that is no database, and begins a new one."""

    def _connected(self, path: str) -> sqlite3.Connection:
        try:
            return super()._connected(path)
        except EventStoreError as error:
            if "not a database" not in str(error):
                raise
            Path(path).rename(f"{path}.broken")
            return super()._connected(path)


@faulty("queues-while-locked", load=False)
class QueuesWhileLocked(PlainStore):
    """Takes a write into memory while another process has the lock, and writes it later."""

    PATIENCE: ClassVar[float] = 0.05

    def __init__(self, path: str) -> None:
        self.queue: list[Sequence[Row]] = []
        super().__init__(path)

    async def _write(self, rows: Sequence[Row]) -> None:
        try:
            self._write_queue()
            await super()._write(rows)
        except (EventStoreError, sqlite3.OperationalError) as error:
            if "locked" not in str(error):
                raise
            self.queue.append(rows)

    def _write_queue(self) -> None:
        while self.queue:
            with self._begun(self.connection):
                self._insert(self.queue[0])
            self.queue.pop(0)

    async def acquire_fence(self, execution_id: str, /) -> int:
        """Fence, however often the lock is taken."""
        while True:
            try:
                return await super().acquire_fence(execution_id)
            except EventStoreError as error:
                if "locked" not in str(error):
                    raise
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Write what is left, and close."""
        while self.queue:
            try:
                self._write_queue()
            except sqlite3.OperationalError:
                await asyncio.sleep(0.01)
        await super().close()


@faulty("breaker-never-closes", deadline=4.0, load=False)
class BreakerNeverCloses(PlainStore):
    """Refuses everything once a write has failed, to spare a storage that is in trouble."""

    PATIENCE: ClassVar[float] = 0.15

    def __init__(self, path: str) -> None:
        self.open_since: Any = None
        super().__init__(path)

    async def _write(self, rows: Sequence[Row]) -> None:
        if self.open_since is not None:
            raise EventStoreError("the circuit is open") from self.open_since
        try:
            await super()._write(rows)
        except EventStoreError as error:
            if isinstance(error.__cause__, sqlite3.OperationalError):
                self.open_since = error
            raise
