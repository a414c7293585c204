"""The proxy, against an echo server that counts what reached it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loom_conformance.lab.faults.address import (
    Endpoint,
    is_postgres,
    postgres_endpoint,
    postgres_through,
)
from loom_conformance.lab.faults.proxy import Proxy, Trap

pytestmark = pytest.mark.asyncio


class Echo:
    """Answers every line with itself, and remembers it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.lines.append(line)
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def proxied(*, path: str = "") -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    if path:
        server = await asyncio.start_unix_server(echo.serve, path)
        upstream = Endpoint(path=path)
    else:
        server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
        upstream = Endpoint(*server.sockets[0].getsockname()[:2])
    async with Proxy(upstream) as proxy:
        yield echo, proxy
    server.close()


class Client:
    """Asks the echo server through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, proxy: Proxy) -> Client:
        return cls(*await asyncio.open_connection(*proxy.listening))

    async def ask(self, text: str) -> str | None:
        """The answer, or `None` where the connection was cut."""
        try:
            self.writer.write(text.encode() + b"\n")
            await self.writer.drain()
            answer = (await self.reader.readline()).decode().strip()
        except ConnectionError:
            answer = ""
        if not answer:
            self.writer.close()
        return answer or None


async def test_what_is_not_trapped_passes() -> None:
    async with proxied() as (echo, proxy):
        client = await Client.connect(proxy)
        for number in range(3):
            assert await client.ask(f"hello {number}") == f"hello {number}"
        assert len(echo.lines) == 3
        assert proxy.rounds == 3
        assert proxy.sprung == []
        client.writer.close()


async def test_a_lost_request_never_reaches_the_server() -> None:
    async with proxied() as (echo, proxy):
        client = await Client.connect(proxy)
        await client.ask("one")
        proxy.set(Trap("request"))
        assert await client.ask("two") is None
        assert echo.lines == [b"one\n"]
        (sprung,) = proxy.sprung
        assert sprung.bytes == 4


async def test_a_lost_answer_is_lost_after_the_server_gave_it() -> None:
    async with proxied() as (echo, proxy):
        client = await Client.connect(proxy)
        proxy.set(Trap("answer"))
        assert await client.ask("one") is None
        assert echo.lines == [b"one\n"]
        (sprung,) = proxy.sprung
        assert sprung.bytes == 4
        again = await Client.connect(proxy)
        assert await again.ask("two") == "two", "a trap goes off once"
        again.writer.close()


async def test_the_chosen_round_is_hit() -> None:
    async with proxied() as (echo, proxy):
        client = await Client.connect(proxy)
        proxy.set(Trap("answer", round=3))
        assert [await client.ask(text) for text in "abc"] == ["a", "b", None]
        assert len(echo.lines) == 3


async def test_rounds_of_a_cold_connection_do_not_count() -> None:
    async with proxied() as (_, proxy):
        warm, cold = await Client.connect(proxy), await Client.connect(proxy)
        await warm.ask("handshake")
        await warm.ask("handshake")
        proxy.set(Trap("answer", warm=2))
        assert await cold.ask("x") == "x"
        assert await warm.ask("y") is None
        cold.writer.close()


async def test_a_delayed_answer_arrives() -> None:
    async with proxied() as (_, proxy):
        client = await Client.connect(proxy)
        proxy.set(Trap("delay", seconds=0.01))
        assert await client.ask("one") == "one"
        assert [sprung.trap.loss for sprung in proxy.sprung] == ["delay"]
        client.writer.close()


async def test_cut_ends_every_connection() -> None:
    async with proxied() as (_, proxy):
        clients = [await Client.connect(proxy) for _ in range(3)]
        for client in clients:
            await client.ask("one")
        assert await proxy.cut() == 3
        assert [await client.ask("two") for client in clients] == [None] * 3
        assert proxy.cuts == 3


async def test_a_server_that_is_down_is_a_closed_connection() -> None:
    async with proxied() as (_, proxy):
        proxy.upstream = Endpoint("127.0.0.1", 1)
        client = await Client.connect(proxy)
        assert await client.ask("one") is None


async def test_a_unix_socket_can_be_behind_it(tmp_path: Path) -> None:
    async with proxied(path=str(tmp_path / "s")) as (_, proxy):
        client = await Client.connect(proxy)
        assert await client.ask("one") == "one"
        client.writer.close()


# --- Addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "endpoint", "through"),
    [
        (
            "postgresql://u:p%40@db:5433/name?options=-csearch_path%3Ds",
            Endpoint("db", 5433),
            "postgresql://u:p%40@127.0.0.1:99/name?options=-csearch_path%3Ds",
        ),
        (
            "postgresql://postgres@/postgres?host=%2Ftmp%2Fx&port=5434&sslmode=disable",
            Endpoint(path="/tmp/x/.s.PGSQL.5434"),
            "postgresql://postgres@127.0.0.1:99/postgres?sslmode=disable",
        ),
        ("postgres://db/name", Endpoint("db", 5432), "postgres://127.0.0.1:99/name"),
    ],
)
async def test_a_dsn_is_led_through_the_proxy(
    address: str, endpoint: Endpoint, through: str
) -> None:
    assert is_postgres(address)
    assert postgres_endpoint(address) == endpoint
    assert postgres_through(address, "127.0.0.1", 99) == through


async def test_a_dsn_of_several_servers_is_refused_without_its_password() -> None:
    with pytest.raises(ValueError, match="no single server") as caught:
        postgres_endpoint("postgresql://u:secret@a,b/name")
    assert "secret" not in str(caught.value)
