"""Blocking I/O and threads in a node's own code, noticed through Python's audit events.

What goes through the event loop is refused by the loop itself. A raw socket, a thread, a process
or a `time.sleep` does not go through it, and would run in silence.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from .owner import OWNER

REFUSED: Final = {
    "_thread.start_joinable_thread": "a thread",
    "_thread.start_new_thread": "a thread",
    "os.fork": "os.fork",
    "os.posix_spawn": "os.posix_spawn",
    "os.system": "os.system",
    "socket.bind": "socket.bind",
    "socket.connect": "socket.connect",
    "socket.getaddrinfo": "socket.getaddrinfo",
    "socket.gethostbyname": "socket.gethostbyname",
    "socket.sendmsg": "socket.sendmsg",
    "socket.sendto": "socket.sendto",
    "sqlite3.connect": "sqlite3.connect",
    "subprocess.Popen": "subprocess.Popen",
    "time.sleep": "time.sleep",
}
"""Audit events that a node may not raise, with the words for each.

Python tells of threads from 3.12 on, and of `time.sleep` from 3.13 on.
"""

_installed = False


def install() -> None:
    """Watch from now on; Python takes no hook back, and it costs others one look a known event."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_watch)


def _watch(event: str, args: tuple[Any, ...]) -> None:
    what = REFUSED.get(event)
    if what is not None:
        owner = OWNER.get()
        if owner is not None:
            raise owner.refuse(what)
