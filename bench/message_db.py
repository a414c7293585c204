"""Message DB, an event store in PostgreSQL's own functions, called by asyncpg.

Its SQL is published in the npm registry alone, so npm fetches it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg

from .events import KIND, METADATA, PAYLOAD

PACKAGE: Final = "@eventide/message-db@1.3.1"

SCRIPTS: Final = (
    "schema/message-store",
    "extensions/pgcrypto",
    "tables/messages",
    "types/message",
    "functions/message-store-version",
    "functions/hash-64",
    "functions/acquire-lock",
    "functions/category",
    "functions/is-category",
    "functions/id",
    "functions/cardinal-id",
    "functions/stream-version",
    "functions/write-message",
    "indexes/messages-id",
    "indexes/messages-stream",
    "indexes/messages-category",
)
"""What its installer runs, as far as writing needs it, in its order."""


class NotFetchedError(Exception):
    """The package could not be had."""


@dataclass(frozen=True, slots=True)
class Message:
    """What `write_message` takes, but for the content."""

    id: str
    stream: str
    expected_version: int


class MessageDB:
    """One session, with `write_message` prepared."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._session: Any = None

    async def open(self) -> None:
        """Install it in the server's database and connect.

        Raises:
            NotFetchedError: there is no npm, or it could not fetch the package.
        """
        scripts = await asyncio.to_thread(fetched)
        self._session = await asyncpg.connect(
            self._dsn, server_settings={"search_path": "message_store,public"}
        )
        for script in scripts:
            await self._session.execute(script)
        self._write = await self._session.prepare("SELECT write_message($1, $2, $3, $4, $5, $6)")

    async def close(self) -> None:
        """End the session, if there is one."""
        if self._session is not None:
            await self._session.close()

    async def append_all(self, messages: Sequence[Message]) -> int:
        """One call a message, each with the version that it expects."""
        for message in messages:
            await self._write.fetchval(
                message.id,
                message.stream,
                KIND,
                json.dumps(PAYLOAD),
                json.dumps(METADATA),
                message.expected_version,
            )
        return len(messages)


def messages(count: int) -> list[Message]:
    """So many messages of one new stream."""
    stream = f"order-{uuid.uuid4()}"
    return [Message(str(uuid.uuid4()), stream, number - 1) for number in range(count)]


def fetched() -> list[str]:
    """The scripts of the package.

    Raises:
        NotFetchedError: there is no npm, or it could not fetch the package.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NotFetchedError("Message DB is not measured: its package needs npm, which is absent")
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
        packed = subprocess.run(
            [npm, "pack", "--silent", PACKAGE],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if packed.returncode != 0:
            reason = packed.stderr.strip().splitlines() or ["npm said nothing"]
            raise NotFetchedError(
                f"Message DB is not measured: npm could not fetch it: {reason[0]}"
            )
        with tarfile.open(Path(folder) / packed.stdout.strip()) as archive:
            archive.extractall(folder, filter="data")
        root = Path(folder) / "package" / "database"
        return [(root / f"{script}.sql").read_text(encoding="utf-8") for script in SCRIPTS]
