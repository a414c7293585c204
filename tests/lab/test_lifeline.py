"""A process that ends with the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap


def test_a_process_ends_when_its_parent_is_killed() -> None:
    child = """
        import sys, threading
        from loom_conformance.lab.lifeline import end_with_parent
        end_with_parent()
        print("ready", flush=True)
        threading.Event().wait()
    """
    parent = f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", {textwrap.dedent(child)!r}])
    """
    # The pipe's writing end is held by both: it closes when the last of them has ended.
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGKILL)
        assert process.stdout.read() == b""
