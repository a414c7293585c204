"""Where PostgreSQL comes from: the order of the sources, and the words when there is none."""

from __future__ import annotations

import importlib
import socket
import sys
import threading
from pathlib import Path

import pytest

from loom_backends.postgres import discovery
from loom_backends.postgres.discovery import PostgresNotFoundError, Source, describe, find


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it: no folder, no package, no engine."""
    monkeypatch.setattr(discovery, "FOLDERS", (f"{tmp_path}/lib/postgresql/*/bin",))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    monkeypatch.delitem(sys.modules, discovery.EMBEDDED, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv(discovery.VARIABLE, raising=False)
    return tmp_path


def install(folder: Path, *programs: str) -> Path:
    """Put programs into a folder."""
    folder.mkdir(parents=True)
    importlib.invalidate_caches()
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def find_on(machine: Path, *, dsn: str | None = None, engine: bool = False) -> Source:
    environment = {"PATH": str(machine / "path")}
    if dsn is not None:
        environment[discovery.VARIABLE] = dsn
    return find(environment, lambda: engine)


def test_the_first_source_of_the_order_is_taken(machine: Path) -> None:
    with pytest.raises(PostgresNotFoundError):
        find_on(machine)
    assert find_on(machine, engine=True).kind == "container"

    embedded = install(
        machine / "site-packages" / discovery.EMBEDDED / "pginstall" / "bin", "postgres", "initdb"
    )
    (embedded.parents[1] / "__init__.py").write_text("raise SystemExit('imported')\n")
    found = find_on(machine, engine=True)
    assert (found.kind, found.binaries) == ("embedded", embedded)

    old = install(machine / "lib" / "postgresql" / "9" / "bin", "postgres", "initdb")
    assert find_on(machine, engine=True) == Source("local", f"the binaries in {old}", binaries=old)
    new = install(machine / "lib" / "postgresql" / "15" / "bin", "postgres", "initdb")
    assert find_on(machine).binaries == new
    install(machine / "lib" / "postgresql" / "16" / "bin", "postgres")
    assert find_on(machine).binaries == new, "a folder without initdb is of no use"

    elsewhere = install(machine / "opt" / "bin", "postgres", "initdb")
    (machine / "path").mkdir()
    (machine / "path" / "postgres").symlink_to(elsewhere / "postgres")
    assert find_on(machine).binaries == elsewhere

    given = find_on(machine, dsn="postgresql://db/app", engine=True)
    assert (given.kind, given.dsn) == ("dsn", "postgresql://db/app")


def test_the_newest_embedded_server_is_taken(machine: Path) -> None:
    package = machine / "site-packages" / discovery.EMBEDDED
    install(package / "pginstall" / "bin", "postgres", "initdb")
    newest = install(package / "pginstall18" / "bin", "postgres", "initdb")
    (package / "__init__.py").write_text("")
    assert find_on(machine).binaries == newest


@pytest.mark.usefixtures("machine")
def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_engine_answers", lambda: False)
    said = describe()
    assert "\n" not in said
    for word in ("LOOM_POSTGRES_DSN", "apt install postgresql", "[embedded]", "[containers]"):
        assert word in said


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(discovery.VARIABLE, "postgresql://app:secret@db/app")
    assert "secret" not in describe()
    assert discovery.VARIABLE in describe()


@pytest.mark.parametrize(
    ("answer", "answers"), [(b"HTTP/1.1 200 OK\r\n", True), (b"no engine\n", False), (b"", False)]
)
def test_an_engine_must_answer(tmp_path: Path, answer: bytes, answers: bool) -> None:
    pytest.importorskip("testcontainers")
    address = {"DOCKER_HOST": f"unix://{tmp_path}/engine.sock"}
    assert not discovery._engine_answers(address)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(f"{tmp_path}/engine.sock")
        engine.listen()

        def serve() -> None:
            client, _ = engine.accept()
            with client:
                client.recv(100)
                client.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        assert discovery._engine_answers(address) is answers
        serving.join()


def test_an_engine_that_is_silent_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("testcontainers")
    monkeypatch.setattr(discovery, "ENGINE_WITHIN", 0.05)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(f"{tmp_path}/engine.sock")
        engine.listen()
        assert not discovery._engine_answers({"DOCKER_HOST": f"unix://{tmp_path}/engine.sock"})


def test_an_engine_elsewhere_is_asked_by_its_port() -> None:
    pytest.importorskip("testcontainers")
    with socket.create_server(("127.0.0.1", 0)) as engine:
        address = {"DOCKER_HOST": f"tcp://127.0.0.1:{engine.getsockname()[1]}"}
        assert discovery._engine_answers(address)
    assert not discovery._engine_answers(address)
