"""SCOPE-1 to SCOPE-3: a tenant's view of a store is a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations
from typing import Any

from ..lab.calls import Handle, Outcome, short
from ..lab.spy import spied
from ..lab.stage import EPOCH, Stage
from ..lab.values import LOOKALIKES, METADATA, PAYLOADS
from ..lab.verdict import Inconclusive
from ..spi import (
    ABILITIES,
    FENCE_KEY,
    EventEnvelope,
    EventStoreError,
    abilities,
    is_error,
)
from .case import rule

TENANTS = (
    "a",
    "A",
    "a:b",
    "a/b",
    "a-b",
    "a.b",
    "a|b",
    "a%3Ab",
    "a::",
    ":a",
    "a b",
    "é",
    "e\u0301",
    "1",
    "1:a",
    "\\",
    "\U0001f9f5",
    "t" * 200,
    "t" * 201,
)

KEYS = "keys that look alike"

Answer = tuple[str, object]


class ScopingSuite:
    """Decorators that rename executions: the backend's own where it has one, else the kit's."""

    @rule("SCOPE-1")
    async def test_a_scoped_handle_answers_as_the_store_beneath_it(self, stage: Stage) -> None:
        address = await stage.own_storage()
        plain = await stage.connect(address, name="plain")
        beneath = await stage.connect(address)
        scoped = stage.adopt(stage.session.scope(beneath.store, "tenant one"), "scoped")
        for told, play in _SCENARIOS.items():
            expected = await play(stage, plain)
            _must_be_right(told, expected)
            found = await play(stage, scoped)
            for (call, want), (_, have) in zip(expected, found, strict=True):
                stage.check(
                    want == have,
                    f"{told}: {call} to be answered as by the store beneath: {_told(want)}",
                    f"the scoped handle answered: {_told(have)}",
                )

    @rule("SCOPE-2")
    async def test_tenants_write_the_same_ids_without_meeting(self, stage: Stage) -> None:
        scoped = [await _scoped(stage, tenant) for tenant in TENANTS]
        base = stage.session.fresh_id()
        names = [base, f"a:{base}", f"b:{base}", f"a/{base}", f":{base}", f"b{base}", "b", ""]
        executions = [f"{name}#{base}" for name in names]
        for number, handle in enumerate(scoped):
            for execution_id in executions:
                outcome = await handle.append(_envelope(execution_id, 0, {"of": number}))
                stage.returned(
                    outcome, f"tenant {TENANTS[number]!r} to have {execution_id!r} to itself"
                )
        for number, handle in enumerate(scoped):
            for execution_id in executions:
                found = await stage.read(handle, execution_id)
                stage.check(
                    found == [_envelope(execution_id, 0, {"of": number})],
                    f"tenant {TENANTS[number]!r} to read its own envelope of {execution_id!r}",
                    short(found),
                )

    @rule("SCOPE-2")
    async def test_tenants_do_not_meet_where_names_run_together(self, stage: Stage) -> None:
        """Pairs of (tenant, execution) whose plain joining would be one name."""
        unique = stage.session.fresh_id()
        for separator in (":", "/", "-", "_", ".", "|", "#", "::", "%3A", " ", "", "\\", "@"):
            one = await _scoped(stage, "x")
            other = await _scoped(stage, f"x{separator}{unique}")
            first = f"{unique}{separator}y"
            second = "y"
            stage.returned(
                await one.append(_envelope(first, 0, "one")), "the first tenant to write"
            )
            stage.returned(
                await other.append(_envelope(second, 0, "other")),
                f"the tenants x and x{separator}… not to meet in {first!r} and {second!r}",
            )
            for handle, name, payload in ((one, first, "one"), (other, second, "other")):
                found = await stage.read(handle, name)
                stage.check(
                    [one_found.payload for one_found in found] == [payload],
                    "each tenant to read its own",
                    short(found),
                )

    @rule("SCOPE-2")
    async def test_tenants_do_not_fence_each_other(self, stage: Stage) -> None:
        await stage.needs("fencing")
        execution_id = stage.session.fresh_id()
        for tenant, other in combinations(TENANTS[:8], 2):
            name = f"{execution_id}-{TENANTS.index(tenant)}-{TENANTS.index(other)}"
            fencing, writing = await _scoped(stage, tenant), await _scoped(stage, other)
            stage.given(await fencing.acquire_fence(name))
            outcome = await writing.append(_envelope(name, 0, "unfenced"))
            stage.returned(outcome, f"a fence of tenant {tenant!r} not to bind tenant {other!r}")

    @rule("SCOPE-3")
    async def test_abilities_are_forwarded_and_only_those(self, stage: Stage) -> None:
        store = (await stage.connect()).store
        offered = sorted(abilities(store))
        for size in range(len(offered) + 1):
            for kept in combinations(offered, size):
                inner, _ = spied(store, without=frozenset(offered) - set(kept))
                scoped = stage.session.scope(inner, "tenant")
                have = sorted(abilities(scoped))
                stage.check(
                    have == sorted(kept),
                    f"over a store with {_names(kept)}, a decorator with just these",
                    f"it has {_names(have)}",
                )


def _must_be_right(told: str, answers: Sequence[Answer]) -> None:
    """Make the test inconclusive where the store beneath is wrong already."""
    for method, answer in answers:
        wrong = method.startswith("read_") and not isinstance(answer, list)
        if told == KEYS:
            wrong = wrong or (method == "append" and answer is not None)
            wrong = wrong or (isinstance(answer, list) and len(answer) != 1)
        if wrong:
            raise Inconclusive(f"{told}: the store beneath answers {method} with {short(answer)}")


def _told(answer: object) -> str:
    return "ok" if answer is None else answer if isinstance(answer, str) else short(answer)


async def _scoped(stage: Stage, tenant: str) -> Handle:
    """A tenant's handle over one connection that all tenants of a test share."""
    store = (await stage.contenders(1))[0].store
    inner, _ = spied(store)
    return Handle(stage.session.scope(inner, tenant), f"{tenant!r:.20}", stage.steps, stage.session)


def _envelope(execution_id: str, sequence: int, payload: Any, **more: Any) -> EventEnvelope:
    fields = {"id": f"{execution_id}-{sequence}", "metadata": {}, **more}
    return EventEnvelope(
        execution_id, sequence, fields["id"], "K", EPOCH, payload, fields["metadata"]
    )


def _names(kept: Sequence[str]) -> str:
    return ", ".join(ABILITIES[ability] for ability in kept) or "no optional method"


# --- scenarios, each played on the plain handle and on the scoped one --------------------------


def _answer(outcome: Outcome[Any]) -> Answer:
    """A call's answer without what differs by the handle: class names of errors, values read."""
    method = outcome.call.split("(", 1)[0].rpartition(".")[2]
    if outcome.error is not None:
        if is_error(outcome.error, ValueError):
            return method, "a ValueError"
        known = is_error(outcome.error, EventStoreError)
        return method, type(outcome.error).__name__ if known else "an error of the driver"
    if isinstance(outcome.value, Sequence):
        return method, [
            (
                one.execution_id,
                one.sequence,
                one.id,
                one.kind,
                one.timestamp,
                repr(one.payload),
                repr({key: value for key, value in one.metadata.items() if key != FENCE_KEY}),
                FENCE_KEY in one.metadata,
            )
            for one in outcome.value
        ]
    return method, None if outcome.value is None else "a value"


async def _writes(stage: Stage, handle: Handle) -> list[Answer]:
    """Writes, conflicts of each kind, and reads, with ids given by the scenario itself."""
    name = "scoped writes"
    answers: list[Outcome[Any]] = [
        await handle.append(_envelope(name, 0, "first")),
        await handle.append(_envelope(name, 0, "rival", id="another")),
        await handle.append(_envelope(name, 1, "again", id=f"{name}-0")),
        await handle.append(_envelope(name, 0, "first")),
        await handle.append(_envelope(f"{name} two", 0, "elsewhere", id=f"{name}-0")),
        await handle.append(_envelope(name, 1, "second")),
        await handle.read_from(name),
        await handle.read_from(name, 1),
        await handle.read_from(f"{name} three"),
    ]
    if await stage.offers("batch"):
        answers += [
            await handle.append_batch(
                [_envelope(name, 2, "a", metadata={"node": "n1"}), _envelope(name, 3, "b")]
            ),
            await handle.append_batch([_envelope(name, 4, "a"), _envelope(name, 3, "rival")]),
            await handle.append_batch([]),
            await handle.append_batch([_envelope(name, 4, "c"), _envelope(f"{name} b", 4, "d")])
            if stage.backend.batch_scope == "store" and stage.backend.sparse_sequences
            else await handle.append_batch([_envelope(name, 4, "c")]),
            await handle.read_from(f"{name} b"),
        ]
        if stage.backend.batch_scope == "store":
            spanning = [_envelope(f"{name} c", 0, "new"), _envelope(name, 0, "rival", id="third")]
            answers.append(await handle.append_batch(spanning))
            answers.append(await handle.read_from(f"{name} c"))
    if await stage.offers("range"):
        answers.append(await handle.read_range(name, 1, 2))
    answers.append(await handle.read_from(name))
    return [_answer(outcome) for outcome in answers]


async def _fences(stage: Stage, handle: Handle) -> list[Answer]:
    if not await stage.offers("fencing"):
        return []
    name = "scoped fences"
    first = await handle.acquire_fence(name)
    second = await handle.acquire_fence(name)
    old, current = {"fence": first.value}, {"fence": second.value}
    answers = [
        first,
        second,
        await handle.append(_envelope(name, 0, "old", metadata=old)),
        await handle.append(_envelope(name, 0, "missing")),
        await handle.append(_envelope(name, 0, "current", metadata=current)),
        await handle.append(_envelope(name, 0, "stale and taken", metadata=old)),
        await handle.read_from(name),
    ]
    if await stage.offers("batch"):
        several = [
            [_envelope(name, place, place, metadata=token) for place, token in enumerate(tokens, 1)]
            for tokens in ((current, old), (current, {}), (current, current))
        ]
        answers += [await handle.append_batch(batch) for batch in several]
        answers.append(await handle.read_from(name))
    return [_answer(outcome) for outcome in answers]


async def _values(stage: Stage, handle: Handle) -> list[Answer]:
    name = "scoped values"
    answers: list[Outcome[Any]] = []
    for place, payload in enumerate(PAYLOADS):
        extra = METADATA[place % len(METADATA)]
        answers.append(await handle.append(_envelope(name, place, payload, metadata=dict(extra))))
    answers.append(await handle.read_from(name))
    return [_answer(outcome) for outcome in answers]


async def _keys(stage: Stage, handle: Handle) -> list[Answer]:
    answers: list[Outcome[Any]] = []
    names = [one for group in LOOKALIKES for one in group]
    for name in names:
        answers.append(await handle.append(_envelope(name, 0, name, id=f"scoped {name}"[:300])))
    for name in names:
        answers.append(await handle.read_from(name))
    return [_answer(outcome) for outcome in answers]


_SCENARIOS: dict[str, Callable[[Stage, Handle], Awaitable[list[Answer]]]] = {
    "writes and conflicts": _writes,
    "fences": _fences,
    "values": _values,
    KEYS: _keys,
}
