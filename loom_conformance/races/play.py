"""A race made ready for the scheduler: its nodes, its storage, and the judgement of each run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..backend import Backend, Coalescing, Leasing, Scoping
from ..clock import Clock
from ..contract.operations import ReadFrom
from ..decorators import CoalescingEventStore, TenantScopedEventStore
from ..interleave.node import Node as Stand
from ..interleave.scenario import Outcome, Scenario
from ..lab.verdict import NotOffered
from ..runtime.leases import LeaseTable, LocalLeaseStore
from ..spi import EventStore, LeaseStore, has_ability
from .beneath import Broken, broken_at_once, first_broken, model_of
from .checks import Check
from .evidence import Call, Evidence
from .race import Parameters, Race
from .scene import Scene, Subject


@dataclass(frozen=True, slots=True)
class Loss:
    """What was wrong with one run.

    Attributes:
        findings: what did not hold, one sentence each.
        beneath: the store's rule that was broken beneath it, if one was.
        evidence: all that the run left behind.
    """

    findings: tuple[str, ...]
    beneath: Broken | None
    evidence: Evidence = field(repr=False)


class Lost(AssertionError):
    """A run lost the race."""

    def __init__(self, loss: Loss) -> None:
        super().__init__("; ".join(loss.findings))
        self.loss = loss


class Storage(Backend):
    """The backend under test, with what the race and its subject put around every handle."""

    name = "race"

    def __init__(self, backend: Backend, race: Race, subject: Subject) -> None:
        self.backend = backend
        self.race = race
        self.wrap = subject.store() if subject.store is not None else None
        self.leases = LeaseTable()
        self.envelope_ids = backend.envelope_ids  # type: ignore[misc]

    async def create(self) -> str:
        """A fresh storage of the backend."""
        return await self.backend.create()

    async def connect(self, address: str) -> EventStore:
        """One more handle, with what is put around it."""
        store = await self.backend.connect(address)
        if self.wrap is not None:
            store = self.wrap(store)
        return self.race.around(store)

    async def connect_leases(self, address: str) -> LeaseStore:
        """A handle on the backend's leases, or on the kit's where it has none."""
        if isinstance(self.backend, Leasing) and "leases" not in self.backend.declined:
            return await self.backend.connect_leases(address)
        return LocalLeaseStore(self.leases)

    async def destroy(self, address: str) -> None:
        """Remove the storage."""
        await self.backend.destroy(address)


class BackendDecorators:
    """A backend's own decorators where it has them, else the kit's."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def coalesce(
        self, store: EventStore, max_linger: float, max_batch: int, clock: Clock
    ) -> EventStore:
        """Put a handle behind group commit."""
        if isinstance(self.backend, Coalescing):
            return self.backend.coalescing(store, max_linger=max_linger, max_batch=max_batch)
        return CoalescingEventStore(store, max_linger=max_linger, max_batch=max_batch, clock=clock)

    def scope(self, store: EventStore, tenant: str) -> EventStore:
        """Put a handle behind a tenant scope."""
        if isinstance(self.backend, Scoping):
            return self.backend.scoping(store, tenant)
        return TenantScopedEventStore(store, tenant)


KIT: Final = Subject()


class Play:
    """One race with its parameters, run by a subject on a backend.

    Args:
        race: what is played.
        backend: an instance that can create and connect in the loop of the scheduler.
        parameters: what the race leaves open.
        subject: what runs it; the kit's runtime by default.
        headline: judge only what the race is known for.
        ordered: whether the store's calls run one at a time.
    """

    def __init__(
        self,
        race: Race,
        backend: Backend,
        parameters: Parameters | None = None,
        subject: Subject = KIT,
        *,
        headline: bool = False,
        ordered: bool = True,
    ) -> None:
        self.race = race
        self.backend = backend
        self.parameters = race.variants[0] if parameters is None else parameters
        self.subject = subject
        self.storage = Storage(backend, race, subject)
        self.headline = headline
        self.ordered = ordered
        self.begun: Scene | None = None
        self._going = 0

    @property
    def scene(self) -> Scene:
        """The run that is going on, or that was the last."""
        if self.begun is None:
            raise RuntimeError("the race has not begun; its storage is set up first")
        return self.begun

    def scenario(self) -> Scenario:
        """What the scheduler runs."""
        blank = self.scene_on(None)
        return Scenario(
            self.race.id,
            [self._main(name) for name in self.race.nodes(blank)],
            self._judge,
            given=self._given,
            variant=str(self.parameters),
        )

    def scene_on(self, storage: EventStore | None) -> Scene:
        """A run that has not begun; without a storage it serves to name nodes only."""
        return Scene(self.parameters, self.subject, BackendDecorators(self.backend), storage)

    async def _given(self, storage: EventStore) -> None:
        await self.begin(storage)

    async def begin(self, storage: EventStore) -> Scene:
        """Begin a run: set up what the race starts from."""
        self.begun = scene = self.scene_on(storage)
        self._checks(scene)  # names the executions, so that nothing depends on when they come up
        self._going = len(self.race.nodes(scene))
        await self.race.given(scene)
        return scene

    def _main(self, name: str) -> Callable[[Stand], Coroutine[Any, Any, None]]:
        async def main(stand: Stand) -> None:
            scene = self.scene
            await self.race.nodes(scene)[name](scene.node(name, stand))
            if self.follows:
                # Whoever is done last goes on. Who that is must depend on steps alone.
                touched = stand.resources.effect("done")
                if not await stand.call(("done",), touched, (), self._done):
                    await self.race.after(scene, scene.node("R", stand))

        return main

    async def _done(self) -> int:
        """One node more is done; how many are not."""
        self._going -= 1
        return self._going

    @property
    def follows(self) -> bool:
        """Whether something follows once every node is done."""
        return type(self.race).after is not Race.after

    async def _judge(self, outcome: Outcome) -> None:
        await self.judge()

    async def judge(self) -> None:
        """Judge the run, by all that it left behind.

        Raises:
            Lost: something did not hold.
        """
        scene = self.scene
        evidence = scene.evidence
        checks = self._checks(scene)
        reader = self._reader(scene)
        for execution_id in scene.executions:
            evidence.logs[execution_id] = await reader.read_from(execution_id, 0)
        findings = tuple(found for check in checks for found in check.find(evidence))
        if findings:
            raise Lost(Loss(findings, self._beneath(evidence), evidence))

    def _checks(self, scene: Scene) -> Sequence[Check]:
        everything = self.race.holds(scene)
        return [self.race.headline(scene)] if self.headline else everything

    def _reader(self, scene: Scene) -> EventStore:
        if self.parameters.tenant is None:
            return scene.outside
        return scene.decorators.scope(scene.outside, self.parameters.tenant)

    def _beneath(self, evidence: Evidence) -> Broken | None:
        """The store's rule that was broken first in this run, reads in the end included."""
        calls = [*evidence.earlier, *evidence.calls]
        if not self.ordered:
            return broken_at_once(calls, evidence.logs)
        if self.parameters.tenant is None:
            calls += [
                Call("a fresh handle", ReadFrom(execution_id, 0), None, list(log))
                for execution_id, log in evidence.logs.items()
            ]
        fencing = any(type(call.operation).__name__ == "AcquireFence" for call in calls)
        return first_broken(calls, model_of(self.backend, fencing=fencing))


async def offered(race: Race, backend: Backend, store: EventStore) -> None:
    """Make sure that a backend can run a race.

    Raises:
        NotOffered: it lacks what the race needs, or declines it.
    """
    declined = backend.declined
    for need in sorted(race.needs | {"races"}):
        if need in declined:
            raise NotOffered(f"declined: {declined[need]}")
    if "fencing" in race.needs and not has_ability(store, "fencing"):
        raise NotOffered("the store has no fencing")
    if "coalescing" in race.needs:
        if not has_ability(store, "batch") or "batch" in declined:
            raise NotOffered("the store has no batch, so its writes cannot share a flush")
        if backend.batch_scope != "store":
            raise NotOffered("coalescing needs batches that span executions")
    if "ids in the whole store" in race.needs and backend.envelope_ids != "store":
        raise NotOffered("envelope ids are unique in one execution only")
