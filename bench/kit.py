"""The kit's own time on each reference backend, from a command to its certificate."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

from .pairs import Plan, Result

WITHIN: Final = {"memory": 5.0, "sqlite": 20.0, "postgres": 40.0}
"""How long it may take at the default depth, in seconds."""


async def measure(plan: Plan) -> AsyncIterator[Result]:
    """One run a backend; a short plan measures the kit in memory alone."""
    for name, goal in list(WITHIN.items())[: None if plan.scale >= 1 else 1]:
        before = time.perf_counter()
        check = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loom_conformance", "check", name),
            stdout=asyncio.subprocess.DEVNULL,
        )
        if await check.wait():
            raise RuntimeError(f"loom-conformance check {name} failed: there is nothing to measure")
        seconds = time.perf_counter() - before
        yield Result("the kit", f"check {name}, default depth", seconds, goal=goal, unit="s")
