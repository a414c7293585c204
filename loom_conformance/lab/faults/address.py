"""What an address says about the storage behind it, so that fitting faults can be found.

An author declares nothing for this: a PostgreSQL DSN and the path of a SQLite file are known by
their looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from ...backend import Backend, Networked

POSTGRES_SCHEMES: Final = ("postgres", "postgresql")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens: a host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


def is_postgres(address: str) -> bool:
    """Whether an address is a PostgreSQL DSN."""
    return urlsplit(address).scheme in POSTGRES_SCHEMES


def postgres_endpoint(address: str) -> Endpoint:
    """Where the server of a PostgreSQL DSN listens.

    Raises:
        ValueError: the DSN names several servers, or none.
    """
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    host = query.get("host") or unquote(parts.hostname or "")
    port = int(query.get("port") or parts.port or 5432)
    if not host or "," in host or "," in parts.netloc:
        raise ValueError(f"no single server in {_without_password(address)}")
    if host.startswith("/"):
        return Endpoint(path=f"{host}/.s.PGSQL.{port}")
    return Endpoint(host, port)


def postgres_through(address: str, host: str, port: int) -> str:
    """The same DSN, but by way of another host and port."""
    parts = urlsplit(address)
    user, at, _ = parts.netloc.rpartition("@")
    query = [
        (name, value) for name, value in parse_qsl(parts.query) if name not in ("host", "port")
    ]
    return urlunsplit(
        (
            parts.scheme,
            f"{user}{at}{host}:{port}",
            parts.path,
            urlencode(query, quote_via=quote),
            "",
        )
    )


def endpoint_of(backend: Backend, address: str) -> Endpoint | None:
    """Where the server behind an address listens; `None` where nothing is known of one."""
    if isinstance(backend, Networked):
        return Endpoint(*backend.endpoint(address))
    return postgres_endpoint(address) if is_postgres(address) else None


def through(backend: Backend, address: str, host: str, port: int) -> str:
    """The same storage by way of another host and port."""
    if isinstance(backend, Networked):
        return backend.through(address, host, port)
    return postgres_through(address, host, port)


def postgres_read_only(address: str) -> str:
    """The same DSN, with sessions that may not write."""
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    query["options"] = f"{query.get('options', '')} -cdefault_transaction_read_only=on".strip()
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))


def _without_password(address: str) -> str:
    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))
