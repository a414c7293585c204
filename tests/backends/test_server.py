"""The server of a session: started, killed, brought back, and gone whatever its parent's end."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from loom_backends.postgres import PostgresBackend, server
from loom_backends.postgres.discovery import PostgresNotFoundError, Source, find
from loom_backends.postgres.server import (
    ContainerServer,
    GivenServer,
    LocalServer,
    PostgresStartError,
    start,
)


@pytest.fixture(scope="module")
def binaries() -> Path:
    try:
        found = find().binaries
    except PostgresNotFoundError as error:
        pytest.skip(str(error))
    if found is None:
        pytest.skip("the server is not made from binaries here")
    return found


@pytest.fixture
def local(binaries: Path) -> Iterator[LocalServer]:
    started = LocalServer(binaries)
    yield started
    started.stop()


def directory(dsn: str) -> Path:
    return Path(parse_qs(urlsplit(dsn).query)["host"][0])


def ask(dsn: str, query: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def postmaster(dsn: str) -> int:
    return int((directory(dsn) / "data" / "postmaster.pid").read_text().splitlines()[0])


def test_a_server_is_durable_and_listens_on_its_socket_alone(local: LocalServer) -> None:
    assert ask(local.dsn, "SHOW fsync") == "on"
    assert ask(local.dsn, "SHOW full_page_writes") == "on"
    assert ask(local.dsn, "SHOW listen_addresses") == ""
    assert ask(local.dsn, "SHOW server_encoding") == "UTF8"
    assert directory(local.dsn).stat().st_mode & 0o077 == 0
    assert len(str(directory(local.dsn))) < 40


def test_servers_do_not_meet(local: LocalServer, binaries: Path) -> None:
    second = LocalServer(binaries)
    ask(local.dsn, "CREATE TABLE mine ()")
    assert ask(second.dsn, "SELECT to_regclass('mine')") is None
    second.stop()
    assert ask(local.dsn, "SELECT 1") == 1


def test_a_killed_server_comes_back_with_what_it_had(local: LocalServer) -> None:
    ask(local.dsn, "CREATE TABLE kept AS SELECT 7 AS number")
    before = postmaster(local.dsn)
    local.crash()
    assert postmaster(local.dsn) != before
    assert ask(local.dsn, "SELECT number FROM kept") == 7


def test_a_stopped_server_leaves_nothing(binaries: Path) -> None:
    stopped = LocalServer(binaries)
    pid = postmaster(stopped.dsn)
    stopped.stop()
    stopped.stop()
    assert not directory(stopped.dsn).exists()
    assert not is_running(pid)


PARENT = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from loom_backends.postgres.server import LocalServer
server = LocalServer(Path(sys.argv[1]))
print(server.dsn, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None])
def test_a_server_ends_with_its_parent(binaries: Path, end: signal.Signals | None) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(binaries), *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    dsn = parent.stdout.readline().strip()
    pid = postmaster(dsn)
    if end is None:
        parent.stdin.close()
    else:
        parent.send_signal(end)
    # The keeper holds this pipe too, so it ends when the keeper has.
    parent.wait()
    wait_until_gone(directory(dsn))
    assert not is_running(pid)
    parent.stdin.close()
    parent.stdout.close()


def wait_until_gone(folder: Path) -> None:
    """A keeper removes the folder last of all."""

    async def watch() -> None:
        async with asyncio.timeout(60):
            while folder.exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.01)

    asyncio.run(watch())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_does_not_start_is_one_line_and_no_folder(tmp_path: Path) -> None:
    initdb = tmp_path / "bin" / "initdb"
    initdb.parent.mkdir()
    initdb.write_text("#!/bin/sh\necho 'initdb: error: no space left' >&2; exit 1\n")
    initdb.chmod(0o755)
    with pytest.raises(PostgresStartError, match="no space left") as fault:
        LocalServer(initdb.parent)
    assert "\n" not in str(fault.value)


def test_root_needs_an_account_that_it_can_give_up_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> Any:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", unknown)
    with pytest.raises(PostgresStartError, match="LOOM_POSTGRES_DSN"):
        server._unprivileged_account()


def test_a_given_server_is_left_alone() -> None:
    given = start(Source("dsn", "given", dsn="postgresql://db/app"))
    assert isinstance(given, GivenServer)
    given.stop()
    assert given.dsn == "postgresql://db/app"


class FakeContainer:
    """Stands in for an engine's container."""

    running: ClassVar[list[FakeContainer]] = []
    fault: ClassVar[str | None] = None

    def __init__(self, image: str, *, driver: str | None) -> None:
        assert image.startswith("postgres:")
        assert driver is None

    def start(self) -> None:
        if self.fault is not None:
            raise RuntimeError(self.fault)
        self.running.append(self)

    def get_connection_url(self) -> str:
        return "postgresql://test:test@localhost:32768/test"

    def stop(self) -> None:
        self.running.remove(self)


def test_a_container_is_started_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("testcontainers.community.postgres")
    module.PostgresContainer = FakeContainer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    started = start(Source("container", "a container"))
    assert isinstance(started, ContainerServer)
    assert started.dsn == "postgresql://test:test@localhost:32768/test"
    assert len(FakeContainer.running) == 1
    started.stop()
    assert FakeContainer.running == []
    monkeypatch.setattr(FakeContainer, "fault", "no such image")
    with pytest.raises(PostgresStartError, match="no such image"):
        start(Source("container", "a container"))


def test_a_backend_offers_a_crash_only_of_its_own_server(
    local: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_POSTGRES_DSN", local.dsn)

    async def use() -> None:
        backend = PostgresBackend()
        await backend.start()
        assert not hasattr(backend, "crash")
        address = await backend.create()
        store = await PostgresBackend().connect(address)
        assert await store.acquire_fence("order-1") == 1
        await store.close()
        await backend.destroy(address)
        await backend.stop()

    asyncio.run(use())
    assert ask(local.dsn, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'loom%'") == 0


def test_a_server_that_will_not_do_is_one_line(
    local: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_POSTGRES_DSN", f"postgresql:///x?host={tmp_path}")
    with pytest.raises(PostgresStartError, match="cannot be reached") as fault:
        asyncio.run(PostgresBackend().start())
    assert "\n" not in str(fault.value)
    ask(local.dsn, "CREATE DATABASE narrow TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(PostgresStartError, match="LATIN1"):
        asyncio.run(PostgresBackend(local.dsn.replace("/postgres?", "/narrow?")).start())
