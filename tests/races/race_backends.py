"""Backends and a runtime that the commands load by name."""

from __future__ import annotations

from loom_backends.memory import MemoryBackend
from loom_conformance.runtime import (
    Assembly,
    Event,
    ExecutionJournal,
    Runtime,
    RuntimeDeps,
    WorkflowRuntime,
)


class NoFences(MemoryBackend):
    """A backend that declines fencing."""

    declined = {"fencing": "one node only"}  # noqa: RUF012


class Broken(MemoryBackend):
    """A backend whose server is not there."""

    async def start(self) -> None:
        """Find no server."""
        raise OSError("no such server")


class Eager(WorkflowRuntime):
    """Does not wait until sequence 0 is durable."""

    async def bootstrap(self, journal: ExecutionJournal, started: Event) -> None:
        journal.commit(started)


class EagerAssembly(Assembly):
    """Puts it in place of the kit's runtime."""

    def runtime(self, deps: RuntimeDeps) -> Runtime:
        return Eager(deps)
