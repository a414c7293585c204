"""A PostgreSQL server for one session, made from what `discovery` finds and gone after it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from . import keeper
from .discovery import Source, find

STOP_WITHIN: Final = 30.0
IMAGE: Final = "postgres:17-alpine"


class PostgresStartError(RuntimeError):
    """A server was found and could not be started; the message says why."""


class Server(Protocol):
    """A running server: its DSN, and how to be rid of it."""

    dsn: str

    def stop(self) -> None:
        """Leave nothing behind."""


class GivenServer:
    """A server that someone else runs."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def stop(self) -> None:
        """Leave it as it is."""


class LocalServer:
    """A server of our own, from binaries on this machine, in a short temporary directory.

    It listens on a socket in that directory alone. A keeper process holds it and ends it when this
    process ends, on whatever path. Where this process is root the server runs as another account,
    since PostgreSQL refuses to run as root.
    """

    def __init__(self, binaries: Path, within: str | None = None) -> None:
        """Start it; its directory is made in `within`, or else in the machine's short one."""
        account = _unprivileged_account() if os.geteuid() == 0 else None
        # A socket's path may have about a hundred characters, so `TMPDIR` may be too deep.
        parent = within or _short_directory()
        self._directory = Path(tempfile.mkdtemp(prefix="loom-pg-", dir=parent))
        if account is not None:
            binaries = self._reachable(binaries, account)
        command = [sys.executable, "-I", keeper.__file__, str(binaries), str(self._directory)]
        if account is not None:
            command += ["--account", account]
        # A session of its own: Ctrl-C in a terminal reaches its whole process group.
        self._keeper = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _end, self._keeper)
        self._await_ready()
        self.dsn = f"postgresql://postgres@/postgres?host={quote(str(self._directory), safe='')}"

    def crash(self) -> None:
        """Kill the server without warning (SIGKILL) and bring it back."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.write("crash\n")
        self._keeper.stdin.flush()
        self._await_ready()

    def stop(self) -> None:
        """Stop the server and remove its directory."""
        self._finalizer()

    def _await_ready(self) -> None:
        assert self._keeper.stdout is not None
        answer = self._keeper.stdout.readline().strip()
        if answer != "ready":
            self._finalizer()
            raise PostgresStartError(f"PostgreSQL did not start: {answer.removeprefix('failed ')}")

    def _reachable(self, binaries: Path, account: str) -> Path:
        """The binaries, or a copy of their installation where the account may not enter."""
        entry = pwd.getpwnam(account)
        try:
            subprocess.run(
                [binaries / "initdb", "--version"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                user=entry.pw_uid,
                group=entry.pw_gid,
                extra_groups=[],
                cwd="/",
            )
        except (OSError, subprocess.CalledProcessError):
            return self._copied(binaries, entry)
        return binaries

    def _copied(self, binaries: Path, entry: pwd.struct_passwd) -> Path:
        installation, top = binaries.parent, self._directory / "copy"
        copy = top / installation.parent.name / installation.name
        # A wheel keeps the libraries that it brings in a folder beside its package.
        libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
        try:
            for part in (binaries.name, "lib", "lib64", "share"):
                if (installation / part).is_dir():
                    shutil.copytree(installation / part, copy / part, symlinks=True)
            if libraries.is_dir():
                shutil.copytree(libraries, top / libraries.name)
            for path in (top, *top.rglob("*")):
                os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
        except OSError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise PostgresStartError(
                f"cannot copy PostgreSQL from {installation}: {error}"
            ) from error
        return copy / binaries.name


class ContainerServer:
    """A server in a container; the engine's own reaper removes it if this process is killed."""

    def __init__(self) -> None:
        try:
            from testcontainers.community.postgres import PostgresContainer
        except ImportError:
            from testcontainers.postgres import PostgresContainer
        self._container: Any = PostgresContainer(IMAGE, driver=None)
        try:
            self._container.start()
        except Exception as error:  # the engine's client has errors of many kinds
            raise PostgresStartError(f"the container did not start: {error}") from error
        self.dsn = str(self._container.get_connection_url())

    def stop(self) -> None:
        """Remove the container."""
        self._container.stop()


def start(source: Source | None = None) -> GivenServer | LocalServer | ContainerServer:
    """Start the server that `find` finds, or the given one.

    Raises:
        PostgresNotFoundError: there is none.
        PostgresStartError: there is one and it does not start.
    """
    source = source or find()
    if source.dsn is not None:
        return GivenServer(source.dsn)
    if source.binaries is not None:
        return LocalServer(source.binaries)
    return ContainerServer()


def _unprivileged_account() -> str:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            if pwd.getpwnam(name).pw_uid != 0:
                return name
    raise PostgresStartError(
        "PostgreSQL does not run as root, and this machine has neither an account 'postgres' nor"
        " 'nobody': run as another user, or set LOOM_POSTGRES_DSN"
    )


def _short_directory() -> str | None:
    return "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None


def _end(process: subprocess.Popen[str]) -> None:
    """Close the keeper's pipe, which ends the server, and wait for it."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    process.stdout.close()
