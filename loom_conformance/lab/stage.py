"""What a suite test works with: handles, logs it knows, set-up that must succeed, and checks.

Set-up that fails makes a test inconclusive; only a check of the rule itself breaks the rule.
A refusal is always checked three ways: the error's class, an unchanged log on another handle (at
once; and on a fresh one when the test ends, on one write path of each kind), and a next good write
on the same handle while the error is still held.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ..backend import Backend
from ..spi import (
    FENCE_KEY,
    EventEnvelope,
    EventStore,
    JsonValue,
    abilities,
    differing_fields,
    has_ability,
    is_error,
)
from .awaits import watching
from .backend_ref import UnreachableBackendError
from .calls import Handle, Outcome, settle, short, told_envelope, told_envelopes
from .paths import APPEND, WritePath
from .processes import ChildFailed, Nursery
from .verdict import Failure, Inconclusive, NotOffered, RuleBroken

if TYPE_CHECKING:
    from .session import Session

T = TypeVar("T")
Make = Callable[[int], EventEnvelope]

ENOUGH = 2000
"""How many envelopes make a long execution where writing more would take too long."""

EPOCH = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)


@dataclass(slots=True, eq=False)
class Log:
    """One execution and what it must hold by now, as far as the test knows."""

    execution_id: str
    token: int | None = None
    envelopes: list[EventEnvelope] = field(default_factory=list)

    @property
    def next(self) -> int:
        """The first free sequence."""
        return self.envelopes[-1].sequence + 1 if self.envelopes else 0

    def envelope(
        self,
        sequence: int | None = None,
        *,
        token: object = "current",
        id: str | None = None,
        kind: str = "STEP_COMPLETED",
        timestamp: datetime | None = None,
        payload: JsonValue = None,
        metadata: dict[str, JsonValue] | None = None,
    ) -> EventEnvelope:
        """An envelope for this execution; by default the next one under the current token.

        `token=None` leaves the token out; any other value is put in as it is.
        """
        place = self.next if sequence is None else sequence
        given = self.token if token == "current" else token
        more: dict[str, Any] = dict(metadata or {})
        if given is not None:
            more[FENCE_KEY] = given
        return EventEnvelope(
            execution_id=self.execution_id,
            sequence=place,
            id=f"{self.execution_id}-{place}" if id is None else id,
            kind=kind,
            timestamp=timestamp or EPOCH + timedelta(seconds=max(0, place) % 10**6),
            payload={"step": place} if payload is None else payload,
            metadata=more,
        )

    def wrote(self, envelope: EventEnvelope) -> None:
        """Note an envelope that was acknowledged."""
        self.envelopes.append(envelope)
        self.envelopes.sort(key=lambda one: one.sequence)


class Stage:
    """One test's view of the store under test."""

    def __init__(self, session: Session, rule: str, path: WritePath | None, key: str) -> None:
        self.session = session
        self.backend: Backend = session.backend
        self.settings = session.settings
        self.rule = rule
        self.path = path
        self.random = random.Random(f"{session.settings.seed}/{key}")
        self.steps: list[str] = []
        self.logs: list[Log] = []
        self._opened: list[Handle] = []
        self._storages: list[str] = []
        self._checked: dict[Log, None] = {}

    # --- handles and storages ---

    async def address(self) -> str:
        """The shared storage of the session; executions in it are fresh by name."""
        return await self.session.storage()

    async def own_storage(self) -> str:
        """A storage of this test's own, destroyed after it."""
        address = await self.session.create()
        self._storages.append(address)
        return address

    async def remove(self, address: str, *handles: Handle) -> None:
        """Destroy a storage of this test's own, and close its handles, before the test's end."""
        for handle in handles:
            self._opened.remove(handle)
            await self.session.discard(handle)
        self._storages.remove(address)
        await self.session.destroy(address)

    async def connect(self, address: str | None = None, *, name: str | None = None) -> Handle:
        """One more handle, closed after the test."""
        place = await self.address() if address is None else address
        handle = await self.session.connect(place, name or f"h{len(self._opened) + 1}", self.steps)
        self._opened.append(handle)
        return handle

    async def coalesced(
        self, handle: Handle, *, max_linger: float = 0.0, max_batch: int = 100
    ) -> Handle:
        """The handle behind the coalescing decorator: the backend's own, or the kit's."""
        wrapped = Handle(
            self.session.coalesce(handle.store, max_linger, max_batch),
            f"coalesced {handle.name}",
            self.steps,
            self.session,
        )
        self._opened.append(wrapped)
        return wrapped

    async def writer(self) -> Handle:
        """The session's shared handle for this test's write path."""
        store = await self.session.writer(self.path or APPEND)
        return Handle(store, "writer", self.steps, self.session)

    def adopt(self, store: EventStore, name: str) -> Handle:
        """A store that the test connected by itself, closed after the test."""
        handle = Handle(store, name, self.steps, self.session)
        self._opened.append(handle)
        return handle

    async def contender(self, address: str | None = None) -> Handle:
        """A handle of this test's own, behind what its path asks for."""
        handle = await self.connect(address)
        if self.path is not None and self.path.coalesced:
            return await self.coalesced(handle)
        return handle

    async def contenders(self, count: int) -> list[Handle]:
        """Shared handles for simultaneous calls, each behind what this test's path asks for."""
        path = self.path or APPEND
        return [
            Handle(await self.session.writer(path, node), f"node {node}", self.steps, self.session)
            for node in range(1, count + 1)
        ]

    @asynccontextmanager
    async def fresh(self, address: str | None = None) -> AsyncIterator[Handle]:
        """A handle that saw nothing of what was done, closed at the end of the block."""
        place = await self.address() if address is None else address
        handle = await self.session.connect(place, "fresh", self.steps)
        try:
            yield handle
        finally:
            await self.session.discard(handle)

    async def observer(self) -> Handle:
        """The session's reader: a handle that writes nothing."""
        return Handle(await self.session.observer(), "observer", self.steps, self.session)

    async def verify(self) -> None:
        """Check once more, on a fresh handle, every log that was checked on the observer.

        That is the same for all paths of a kind, and so it is done on one of each.
        """
        if self._checked and (self.path is None or self.path.stands_for_others):
            async with self.fresh() as reader:
                await self._holds(reader, list(self._checked), "")

    async def finish(self) -> None:
        """Close this test's handles and destroy its storages."""
        for handle in reversed(self._opened):
            await self.session.discard(handle)
        for address in self._storages:
            await self.session.destroy(address)

    async def offers(self, ability: str) -> bool:
        """Whether the store has an optional ability and does not decline it."""
        if ability in self.backend.declined:
            return False
        return has_ability(await self.session.writer(APPEND), ability)

    async def needs(self, ability: str) -> None:
        """Raise `NotOffered` unless the store has the ability."""
        if not await self.offers(ability):
            reason = self.backend.declined.get(ability)
            said = f"declined: {reason}" if reason else f"the store has no {ability}"
            raise NotOffered(said)

    async def abilities(self) -> frozenset[str]:
        """The optional abilities that the store has and does not decline."""
        return abilities(await self.session.writer(APPEND)) - set(self.backend.declined)

    def needs_to_outlive_processes(self) -> None:
        """Raise `NotOffered` where the storage ends with the process that made it."""
        if not self.backend.outlives_process:
            raise NotOffered("the storage lives in its process (outlives_process = False)")

    @asynccontextmanager
    async def nursery(self) -> AsyncIterator[Nursery]:
        """Child processes that open the backend themselves.

        Raises:
            NotOffered: the storage lives in one process.
            Inconclusive: no child could be made, or one could not connect.
        """
        self.needs_to_outlive_processes()
        with tempfile.TemporaryDirectory(prefix="loom-") as folder:
            try:
                forker = await self.session.forker()
                backend = type(self.backend)
                async with Nursery(backend, Path(folder), forker=forker) as nursery:
                    yield nursery
            except BaseException as error:
                await self.session.end_forker()
                if not isinstance(error, UnreachableBackendError | ChildFailed):
                    raise
                raise Inconclusive(
                    f"no child process could use the backend: {error}. (If the storage ends with "
                    "its process, declare outlives_process = False.)"
                ) from error

    # --- set-up ---

    def log(self, execution_id: str | None = None) -> Log:
        """An execution that nothing was written to yet."""
        log = Log(execution_id or self.session.fresh_id())
        self.logs.append(log)
        return log

    def given(self, outcome: Outcome[T]) -> T:
        """The value of a set-up call, or an inconclusive test."""
        if outcome.error is not None:
            raise Inconclusive(f"set-up failed: {outcome.line()}") from outcome.error
        return outcome.value  # type: ignore[return-value]

    def given_refusal(self, outcome: Outcome[Any]) -> None:
        """Note a set-up call that must be refused; an acknowledgement is inconclusive."""
        if outcome.ok:
            raise Inconclusive(f"set-up failed: {outcome.line()}, where a refusal was needed")

    async def given_log(self, length: int = 1, *, fenced: bool = False) -> Log:
        """An execution with `length` envelopes, written one by one; fenced before if asked."""
        log = self.log()
        if fenced:
            await self.given_fence(log)
        await self.given_more(log, length)
        return log

    async def given_more(self, log: Log, length: int = 1) -> None:
        """Append the next `length` envelopes of an execution."""
        writer = await self.writer()
        for _ in range(length):
            envelope = log.envelope()
            self.given(await writer.append(envelope))
            log.wrote(envelope)

    async def given_bulk(self, length: int, log: Log | None = None) -> Log:
        """An execution grown by many envelopes, in batches where the store has them.

        A store without batches that is slow stops growing after a few deadlines: it then has
        fewer, but `ENOUGH` at least.
        """
        log = log or self.log()
        writer = (await self.writer()).patient(10)
        envelopes = [log.envelope(log.next + place) for place in range(length)]
        if await self.offers("batch"):
            size = min(self.backend.max_batch or 1000, 1000)
            for start in range(0, length, size):
                self.given(await writer.append_batch(envelopes[start : start + size]))
        else:
            loop = asyncio.get_running_loop()
            until = loop.time() + 3 * self.settings.deadline
            for done, envelope in enumerate(envelopes):
                if done >= ENOUGH and loop.time() > until:
                    envelopes = envelopes[:done]
                    break
                self.given(await writer.append(envelope))
        log.envelopes += envelopes
        return log

    async def given_fence(self, log: Log) -> int:
        """Acquire a token for the execution and make it the log's current one."""
        await self.needs("fencing")
        writer = await self.writer()
        log.token = self.given(await writer.acquire_fence(log.execution_id))
        return log.token

    # --- checks ---

    def showed(self, of: str = "", **counts: int) -> None:
        """Note what the store was put through, for the certificate: it counts if the test passes.

        Args:
            of: a name for what several tests look at, such as one load, so that it counts once;
                `""` for what this test did alone.
            counts: how many `schedules`, `histories`, `calls` of them, and `faults`.
        """
        self.session.shown.append({"of": of, **counts})

    def broken(self, expected: str, got: str, **more: Any) -> NoReturn:
        """Say that the store broke the rule under test.

        Raises:
            RuleBroken: always.
        """
        path = self.path.name if self.path else None
        raise RuleBroken(Failure(self.rule, expected, got, list(self.steps), path=path, **more))

    def check(self, condition: bool, expected: str, got: str, **more: Any) -> None:
        """Break the rule unless the condition holds."""
        if not condition:
            self.broken(expected, got, **more)

    def returned(self, outcome: Outcome[T], expected: str) -> T:
        """The value of a call that the rule says must return."""
        if outcome.error is not None:
            self.broken(expected, outcome.line())
        return outcome.value  # type: ignore[return-value]

    async def read(self, handle: Handle, execution_id: str) -> list[EventEnvelope]:
        """The whole execution, read as set-up of a check."""
        return self.listed(await handle.read_from(execution_id))

    def listed(self, outcome: Outcome[Sequence[EventEnvelope]]) -> list[EventEnvelope]:
        """What a read returned, or an inconclusive test where it failed or is no sequence."""
        found: object = self.given(outcome)
        if not isinstance(found, Iterable):
            raise Inconclusive(f"{outcome.line()}, which is no sequence of envelopes; see READ-2")
        return list(found)

    async def holds(self, *logs: Log, handle: Handle | None = None, expected: str = "") -> None:
        """Check that each execution holds just what its log says.

        Without a handle it is the observer that looks, and `verify` looks again, at the test's end
        and on a fresh handle.
        """
        if handle is None:
            self._checked.update(dict.fromkeys(logs))
            handle = await self.observer()
        await self._holds(handle, logs, expected)

    async def _holds(self, reader: Handle, logs: Sequence[Log], expected: str) -> None:
        for log in logs:
            found = await self.read(reader, log.execution_id)
            difference = difference_between(log.envelopes, found)
            if difference:
                self.broken(
                    expected or "the log to hold what was acknowledged and nothing else",
                    f"{reader.name} handle reads {short(log.execution_id)}: {difference}",
                )

    def compose(self, log: Log, make: Make) -> tuple[list[EventEnvelope], EventEnvelope, Log]:
        """The target of a write in the company that the write path asks for.

        Returns:
            all envelopes in writing order, the target, and the log of the other execution that
            keeps it company. `make` is given the first sequence that is free for the target.
        """
        path = self.path or APPEND
        other = Log(self.session.fresh_id())
        if path.place == "alone":
            target = make(log.next)
            return [target], target, other
        ahead = [] if path.place == "first" else [log.envelope(log.next)]
        target = make(log.next + len(ahead))
        after = log.next + len(ahead) + (target.sequence == log.next + len(ahead))
        stranger = log.envelope(after + 1)
        if self.backend.batch_scope == "store":
            self.logs.append(other)
            stranger = other.envelope()
        if path.place == "first":
            return [target, log.envelope(after), stranger], target, other
        if path.place == "middle":
            behind = stranger if self.backend.batch_scope == "store" else log.envelope(after)
            return [*ahead, target, behind], target, other
        if self.backend.batch_scope == "store":
            return [stranger, *ahead, target], target, other
        return [*ahead, target], target, other

    async def write(self, handle: Handle, envelopes: list[EventEnvelope]) -> Outcome[None]:
        """Write by this test's path."""
        if (self.path or APPEND).batch:
            return await handle.append_batch(envelopes)
        return await handle.append(envelopes[0])

    async def watched_write(
        self, handle: Handle, envelopes: list[EventEnvelope], at_await: Callable[[int], None]
    ) -> Outcome[None]:
        """Write by this test's path, with a function called at each await of the bare call."""
        store: Any = handle.store
        batch = (self.path or APPEND).batch
        method = "append_batch" if batch else "append"
        call = f"{handle.name}.{method}({told_envelopes(envelopes)})"
        outcome: Outcome[None] = await settle(
            call,
            method,
            lambda: watching(
                store.append_batch(envelopes) if batch else store.append(envelopes[0]), at_await
            ),
            self.session.allowance(method),
        )
        self.steps.append(outcome.line())
        return outcome

    async def write_alone(self, handle: Handle, envelope: EventEnvelope) -> Outcome[None]:
        """Write by this test's path, without company."""
        return await self.write(handle, [envelope])

    def writing(self, handle: Handle, envelope: EventEnvelope) -> Callable[[], Any]:
        """A call that writes the envelope by this test's path, in company of its own."""
        envelopes = self.accompanied(envelope)
        return lambda: self.write(handle, envelopes)

    def accompanied(self, envelope: EventEnvelope) -> list[EventEnvelope]:
        """The envelope in the company that this test's path asks for, of executions of its own."""
        path = self.path or APPEND
        company = [Log(self.session.fresh_id()).envelope() for _ in range(2)]
        if self.backend.batch_scope != "store" or path.place == "alone":
            company = []
        ahead = company[:1] if path.place in ("middle", "last") else []
        behind = company[1:] if path.place in ("first", "middle") else []
        return [*ahead, envelope, *behind]

    async def accepted(
        self, log: Log, make: Make | None = None, *, expected: str = "", read_back: bool = True
    ) -> EventEnvelope:
        """Check that a write by this test's path is acknowledged, and read back on all sides."""
        handle = await self.writer()
        envelopes, target, other = self.compose(log, make or log.envelope)
        outcome = await self.write(handle, envelopes)
        self.returned(outcome, expected or "the write to be acknowledged")
        self.noted(envelopes, log, other)
        if read_back:
            await self.holds(log, *([other] if other.envelopes else []))
        return target

    async def refused(
        self,
        log: Log,
        make: Make,
        *errors: type[BaseException],
        recovery: Make | None = None,
        target: str = "",
    ) -> BaseException:
        """Check that a write by this test's path is refused, in all three ways.

        `make` builds the offender, given the first sequence that is free for it.

        Returns:
            the error, for further checks.
        """
        handle = await self.writer()
        envelopes, offender, other = self.compose(log, make)
        names = " or ".join(error.__name__ for error in errors)
        what = target or told_envelope(offender)
        outcome = await self.write(handle, envelopes)
        if outcome.error is None:
            self.broken(f"{names} for {what}", f"acknowledged: {outcome.call}")
        if not is_error(outcome.error, *errors):
            self.broken(f"{names} for {what}", outcome.line())
        touched = [log, *self._others(envelopes, log, other)]
        await self.holds(*touched, expected=f"a write refused with {names} to leave no trace")
        kept = outcome.error
        await self.still_good(handle, log, recovery)
        return kept

    async def still_good(self, handle: Handle, log: Log, make: Make | None = None) -> None:
        """Check that the next good write on this handle is acknowledged and there."""
        envelopes, _, other = self.compose(log, make or log.envelope)
        outcome = await self.write(handle, envelopes)
        self.returned(outcome, "the next good write on the same handle to be acknowledged")
        self.noted(envelopes, log, other)
        await self.holds(
            log,
            *([other] if other.envelopes else []),
            handle=handle,
            expected="the next good write on the same handle to be stored",
        )

    def noted(self, envelopes: Sequence[EventEnvelope], *logs: Log) -> None:
        """Note envelopes that were acknowledged in the logs that they belong to."""
        known = {log.execution_id: log for log in [*self.logs, *logs]}
        for envelope in envelopes:
            if envelope.execution_id not in known:
                known[envelope.execution_id] = self.log(envelope.execution_id)
            known[envelope.execution_id].wrote(envelope)

    def _others(self, envelopes: Sequence[EventEnvelope], log: Log, other: Log) -> list[Log]:
        named = {envelope.execution_id for envelope in envelopes}
        known = [one for one in self.logs if one.execution_id in named and one is not log]
        if other.execution_id in named and other not in known:
            known.append(other)
        return known


def _same(envelope: EventEnvelope, log: Log) -> bool:
    return envelope.execution_id == log.execution_id


def difference_between(expected: Sequence[EventEnvelope], found: Sequence[object]) -> str | None:
    """What sets two logs apart, in words; `None` where they are equal."""
    for place, (want, have) in enumerate(zip(expected, found, strict=False)):
        if not isinstance(have, EventEnvelope):
            return f"{short(have)} in place {place}, which is no EventEnvelope"
        fields = differing_fields(want, have)
        if fields:
            return (
                f"place {place} holds {told_envelope(have)}, not {told_envelope(want)}"
                if "sequence" in fields or "execution_id" in fields or "id" in fields
                else f"place {place} differs in {told_fields(want, have, fields)}"
            )
    if len(found) < len(expected):
        missing = told_envelope(expected[len(found)])
        return f"{len(found)} of {len(expected)} envelopes; missing {missing}"
    if len(found) > len(expected):
        extra = told_envelope(found[len(expected)])
        return f"{len(found)} envelopes instead of {len(expected)}; too many: {extra}"
    return None


def told_fields(want: EventEnvelope, have: EventEnvelope, fields: Sequence[str]) -> str:
    """The fields in which two envelopes differ, each with both values."""
    return "; ".join(
        f"{name}: wrote {short(getattr(want, name))}, read {short(getattr(have, name))}"
        for name in fields
    )
