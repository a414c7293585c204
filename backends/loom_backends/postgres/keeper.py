"""Keeps one PostgreSQL server for a parent process, and ends it when the parent ends.

Run as a script of its own, with the standard library alone. Its standard input is a pipe that the
parent holds open: at the end of it, however the parent came to its end, the server is stopped and
its directory removed. A line `crash` kills the server and brings it back. Every answer is a line
on standard output: `ready`, or `failed` with the reason.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

SETTINGS: Final = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "deadlock_timeout": "100ms",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "timezone": "UTC",
    # Conflicts are the daily bread of these tests: they would fill the log.
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}

START_WITHIN: Final = 60.0
STOP_WITHIN: Final = 10.0


class FailedError(Exception):
    """The server cannot be made or started."""


class Server:
    """A server in a directory of its own, reached by a socket in that directory."""

    def __init__(self, binaries: Path, directory: Path, account: str | None) -> None:
        self.binaries = binaries
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.options: dict[str, Any] = {"cwd": directory, "stdin": subprocess.DEVNULL}
        if account is not None:
            entry = pwd.getpwnam(account)
            os.chown(directory, entry.pw_uid, entry.pw_gid)
            self.options |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        # Libraries may stand beside the binaries; nothing else of the caller's matters to a server.
        self.options["env"] = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PG") and name not in ("HOME", "TMPDIR")
        } | {"LC_ALL": "C"}

    def initialize(self) -> None:
        """Make the data directory."""
        command = [str(self.binaries / "initdb"), "-D", str(self.data), "-U", "postgres"]
        command += ["-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **self.options
        )
        if done.returncode:
            raise FailedError(f"initdb: {_last_line(done.stdout)}")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = SETTINGS | {"unix_socket_directories": str(self.directory)}
        command = [str(self.binaries / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        deadline = time.monotonic() + START_WITHIN
        with self.log.open("ab") as log:
            while time.monotonic() < deadline:
                self.process = subprocess.Popen(command, stdout=log, stderr=log, **self.options)
                while self.process.poll() is None:
                    if self._is_ready():
                        return
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.01)
                # After a kill, sessions of the old server may still hold its shared memory.
                if b"still in use" not in self.log.read_bytes()[-2000:]:
                    break
                time.sleep(0.05)
        self.stop()
        raise FailedError(f"postgres: {_last_line(self.log.read_bytes())}")

    def _is_ready(self) -> bool:
        """Whether the server says so in the last line of its `postmaster.pid`."""
        assert self.process is not None
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready"

    def crash(self) -> None:
        """Kill it without warning and start it again: it recovers from its log."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.start()

    def stop(self) -> None:
        """End it: a fast shutdown, and a kill where that takes too long."""
        if self.process is None:
            return
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            self.process.send_signal(number)
            try:
                self.process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                continue


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    fatal = [line for line in lines if "FATAL" in line or "error:" in line]
    return (fatal or lines or ["no output"])[-1]


def _exit(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(1)


def main() -> None:
    """Serve the parent until its pipe ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--account")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _exit)
    server = Server(arguments.binaries, arguments.directory, arguments.account)
    try:
        server.initialize()
        server.start()
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "crash":
                server.crash()
                print("ready", flush=True)
    except FailedError as error:
        print(f"failed {error}", flush=True)
    except BrokenPipeError:
        pass
    finally:
        server.stop()
        shutil.rmtree(arguments.directory, ignore_errors=True)


if __name__ == "__main__":
    main()
