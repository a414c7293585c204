"""A node whose clocks are wrong: `python -m loom_conformance.lab.skewed`, driven by JSON lines.

The first line says which backend, which address and by how many seconds every clock of this
process is off; the clocks are moved before the backend is imported, so that whatever it takes from
`time` and `datetime` is moved with them. Each further line is a claim.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
import warnings
from datetime import tzinfo
from typing import Any, ClassVar, Final

from ..backend import Leasing
from .backend_ref import BackendRef

REAL: Final = datetime.datetime


class _Kind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, REAL)


class Shifted(datetime.datetime, metaclass=_Kind):
    """Stands for `datetime.datetime`; what it calls now is off."""

    by: ClassVar[datetime.timedelta]

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return REAL.now(tz) + cls.by

    @classmethod
    def utcnow(cls) -> Any:
        return REAL.now(datetime.UTC).replace(tzinfo=None) + cls.by

    @classmethod
    def today(cls) -> Any:
        return REAL.now() + cls.by


def shift_clocks(seconds: float) -> None:
    """Move what this process believes to be the time."""
    nanoseconds = round(seconds * 1e9)
    for name, amount in (
        ("time", seconds),
        ("monotonic", seconds),
        ("time_ns", nanoseconds),
        ("monotonic_ns", nanoseconds),
    ):
        original = getattr(time, name)
        setattr(time, name, lambda original=original, amount=amount: original() + amount)

    Shifted.by = datetime.timedelta(seconds=seconds)
    datetime.datetime = Shifted  # type: ignore[misc]


async def serve(told: dict[str, Any]) -> None:
    """Open a handle on the leases and make the claims that are asked for."""
    backend = BackendRef.from_json(told["backend"]).load()()
    if not isinstance(backend, Leasing):
        raise TypeError("the backend has no connect_leases")
    leases = await backend.connect_leases(told["address"])
    try:
        _answer({"value": True})
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, holder, ttl = json.loads(line)
            try:
                _answer({"value": await leases.claim(name, holder, ttl)})
            except Exception as error:  # noqa: BLE001 - told to the parent, who judges it
                _answer({"error": f"{type(error).__name__}: {error}"})
    finally:
        await leases.close()


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve the claims of the process that started this one."""
    told = json.loads(sys.stdin.readline())
    sys.path[:] = told["path"]
    # Extension modules may warn that the class they now find is not the one they were built for.
    warnings.simplefilter("ignore", RuntimeWarning)
    try:
        shift_clocks(told["shift"])
        asyncio.run(serve(told))
    except Exception as error:  # noqa: BLE001 - told to the parent, who judges it
        _answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
