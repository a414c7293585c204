"""Ending with the process that started this one."""

from __future__ import annotations

import os
import threading
import time

BEAT = 0.5
"""Seconds between two looks at the parent."""


def end_with_parent() -> None:
    """From now on, end this process at once when its parent has ended, however that ended.

    A check that is killed must not leave the tests of a store behind, at work for nobody.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(BEAT)
        os._exit(1)

    threading.Thread(target=watch, name="loom-lifeline", daemon=True).start()
