"""A session cleans up after a backend, and says so where the backend does not."""

from __future__ import annotations

import asyncio

import pytest

from loom_backends.memory import MemoryBackend
from loom_conformance.lab.session import Session
from loom_conformance.lab.settings import Settings
from loom_conformance.lab.stage import Stage
from loom_conformance.lab.verdict import UncleanWarning

DEADLINE = 0.05


class DestroyHangs(MemoryBackend):
    async def destroy(self, address: str) -> None:
        await asyncio.Event().wait()


class DestroyFails(MemoryBackend):
    async def destroy(self, address: str) -> None:
        raise OSError("the folder is busy")


class StopHangs(MemoryBackend):
    async def stop(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("backend", "problem"),
    [
        (DestroyHangs, r"DestroyHangs\.destroy\(\) did not settle.*storage is left behind"),
        (DestroyFails, r"DestroyFails\.destroy\(\) raised OSError.*storage is left behind"),
        (StopHangs, r"StopHangs\.stop\(\) did not settle.*server may still run"),
    ],
)
def test_what_is_not_cleaned_up_is_said(backend: type[MemoryBackend], problem: str) -> None:
    session = Session(backend, Settings(DEADLINE, seed=1))
    session.run("APPEND-1", "any", _nothing)
    with pytest.warns(UncleanWarning, match=problem):
        session.close()


def test_a_storage_that_stays_spoils_no_verdict() -> None:
    session = Session(DestroyHangs, Settings(DEADLINE, seed=1))
    for _ in range(5):
        with pytest.warns(UncleanWarning):
            session.run("APPEND-1", "any", _own_storage)
    with pytest.warns(UncleanWarning):
        session.close()


async def _nothing(stage: Stage) -> None:
    await stage.writer()


async def _own_storage(stage: Stage) -> None:
    await stage.own_storage()
