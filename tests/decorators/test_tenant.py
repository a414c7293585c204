from __future__ import annotations

import itertools
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from decorators_support import envelope, only
from hypothesis import given
from hypothesis import strategies as st

from loom_backends.memory import MemoryEventStore, MemoryStorage
from loom_conformance.decorators import TenantScopedEventStore
from loom_conformance.decorators.tenant import ENVELOPE_ID_KEY
from loom_conformance.spi import (
    DuplicateEnvelopeIdError,
    DuplicateSequenceError,
    EventEnvelope,
    InvalidEnvelopeError,
    JsonValue,
    StaleFenceError,
    StoreClosedError,
    abilities,
    check_envelope,
)

TENANTS = [
    "",
    "a",
    "A",
    "a:",
    "a:b",
    "1:a",
    "2:",
    "#",
    "a#",
    "é",
    "e\u0301",
    " a",
    "a ",
    "%",
    "_",
    "a\x00",
    "\x00",
    "\ud800",
    "\udfff",
    "\udfff\ud800",
    "😀",
    "x" * 64,
    "x" * 65,
    "x" * 64 + "y",
    "😀" * 300,
]
NAMES = ["a", "b", "c", "b:c", ":", "#", "1:a:b", "x" * 255, "x" * 254 + "y", "😀" * 255, "x" * 187]

scalars = st.characters(codec="utf-8", exclude_characters="\x00")
names = st.text(scalars, min_size=1, max_size=255)
tenants = st.one_of(st.sampled_from(TENANTS), st.text(max_size=80))


T = TypeVar("T")


def finish(call: Coroutine[Any, Any, T]) -> T:
    """Run a call to its end at once: a memory store never suspends."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("the call suspended")


class Outside(MemoryEventStore):
    """A memory store that notes what it is given."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.given: list[EventEnvelope] = []

    async def append(self, envelope: EventEnvelope, /) -> None:
        self.given.append(envelope)
        await super().append(envelope)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def scoped(storage: MemoryStorage, tenant: str) -> TenantScopedEventStore:
    return TenantScopedEventStore(MemoryEventStore(storage), tenant)


def renamed(tenant: str, given: EventEnvelope) -> EventEnvelope:
    """What the inner store is given; it lies in the contract's domain."""
    store = Outside(MemoryStorage())
    finish(TenantScopedEventStore(store, tenant).append(given))
    (inner,) = store.given
    check_envelope(inner)
    return inner


def test_no_two_tenants_and_names_become_one() -> None:
    seen: dict[str, tuple[str, str]] = {}
    ids: dict[str, tuple[str, str]] = {}
    for tenant, name in itertools.product(TENANTS, NAMES):
        inner = renamed(tenant, envelope(name, id=name + "x" * (len(name) % 46)))
        assert seen.setdefault(inner.execution_id, (tenant, name)) == (tenant, name)
        assert ids.setdefault(inner.id, (tenant, name)) == (tenant, name)
    assert len(seen) == len(ids) == len(TENANTS) * len(NAMES)


@given(tenants, tenants, names, names)
def test_renaming_is_one_to_one(one: str, other: str, left: str, right: str) -> None:
    a, b = renamed(one, envelope(left, id=left)), renamed(other, envelope(right, id=right))
    same = (one, left) == (other, right)
    assert (a.execution_id == b.execution_id) is same
    assert (a.id == b.id) is same


@given(
    tenants,
    names,
    st.text(scalars, min_size=1, max_size=300),
    st.dictionaries(
        st.sampled_from([ENVELOPE_ID_KEY, ENVELOPE_ID_KEY + "+", ENVELOPE_ID_KEY + "++", "k"]),
        st.one_of(st.integers(-5, 5), st.text(max_size=3), st.lists(st.none(), max_size=2)),
    ),
)
def test_what_is_read_is_what_was_written(
    tenant: str, name: str, envelope_id: str, metadata: dict[str, JsonValue]
) -> None:
    async def run() -> Sequence[EventEnvelope]:
        store = scoped(MemoryStorage(), tenant)
        await store.append_batch([written])
        assert await store.read_range(name, 0, 0) == await store.read_from(name)
        return await store.read_from(name)

    written = envelope(name, id=envelope_id, metadata=metadata)
    before = dict(metadata)
    assert finish(run()) == [written]
    assert metadata == before


@pytest.mark.parametrize("key", [ENVELOPE_ID_KEY, ENVELOPE_ID_KEY + "+"])
def test_an_envelope_that_uses_our_key_keeps_it(key: str) -> None:
    long_id = "😀" * 300
    for value in (long_id, "other", 3):
        written = envelope("a", id=long_id, metadata={key: value})
        inner = renamed("t", written)
        assert inner.metadata[key] == value

        async def back(written: EventEnvelope = written) -> Sequence[EventEnvelope]:
            store = scoped(MemoryStorage(), "t")
            await store.append(written)
            return await store.read_from("a")

        assert finish(back()) == [written]


@pytest.mark.asyncio
async def test_tenants_do_not_see_block_or_fence_each_other(storage: MemoryStorage) -> None:
    stores = [scoped(storage, tenant) for tenant in TENANTS]
    for number, store in enumerate(stores):
        await store.append(envelope("a", payload=number))
    for number, store in enumerate(stores):
        assert [each.payload for each in await store.read_from("a")] == [number]
    token = await stores[0].acquire_fence("a")
    for store in stores[1:]:
        await store.append(envelope("a", 1))
    with pytest.raises(StaleFenceError):
        await stores[0].append(envelope("a", 1))
    await stores[0].append(envelope("a", 1, metadata={"fence": token}))


@pytest.mark.asyncio
@pytest.mark.parametrize("length", [1, 187, 188, 255])
async def test_refusals_hold_and_carry_the_renamed_ids(storage: MemoryStorage, length: int) -> None:
    store, name, id = scoped(storage, "t"), "n" * length, "i" * (length + 45)
    await store.append(envelope(name, id=id))
    with pytest.raises(DuplicateSequenceError) as slot:
        await store.append(envelope(name, id="another"))
    with pytest.raises(DuplicateEnvelopeIdError) as taken:
        await store.append_batch([envelope("other"), envelope(name, 1, id=id)])
    inner = renamed("t", envelope(name, id=id))
    assert (slot.value.execution_id, slot.value.sequence) == (inner.execution_id, 0)
    assert (taken.value.execution_id, taken.value.envelope_id) == (inner.execution_id, inner.id)
    assert await store.read_from("other") == []


@pytest.mark.asyncio
async def test_a_name_outside_the_domain_is_refused(storage: MemoryStorage) -> None:
    store = scoped(storage, "t")
    bad: list[object] = ["", "a\x00", "\ud800", "x" * 256, None, 5]
    for name in bad:
        with pytest.raises(InvalidEnvelopeError):
            await store.read_from(name)  # type: ignore[arg-type]
        with pytest.raises(InvalidEnvelopeError):
            await store.acquire_fence(name)  # type: ignore[arg-type]
        with pytest.raises(InvalidEnvelopeError):
            await store.append(envelope(name, id="x"))  # type: ignore[arg-type]
    for envelope_id in ("", "a\x00", "x" * 301):
        with pytest.raises(InvalidEnvelopeError):
            await store.append(envelope("a", id=envelope_id))
    with pytest.raises(InvalidEnvelopeError):
        await store.append(envelope("a", id="x" * 300, metadata=[]))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        TenantScopedEventStore(MemoryEventStore(storage), 5)  # type: ignore[arg-type]
    assert storage.logs == {}


@pytest.mark.asyncio
async def test_a_store_that_mixes_executions_up_still_looks_wrong(storage: MemoryStorage) -> None:
    class Mixed(MemoryEventStore):
        async def read_from(self, execution_id: str, first: int = 0, /) -> list[EventEnvelope]:
            return [envelope("someone-else", payload=1)]

    store = TenantScopedEventStore(Mixed(storage), "t")
    assert [each.execution_id for each in await store.read_from("a")] == ["someone-else"]


@pytest.mark.parametrize(
    "more",
    [(), ("append_batch",), ("read_range",), ("acquire_fence",), ("append_batch", "read_range")],
)
def test_abilities_are_those_of_the_inner_store(more: tuple[str, ...]) -> None:
    inner = only(*more)
    assert abilities(TenantScopedEventStore(inner, "t")) == abilities(inner)
    assert len(abilities(inner)) == len(more)


@pytest.mark.asyncio
async def test_close_closes_the_wrapped_handle(storage: MemoryStorage) -> None:
    store = scoped(storage, "t")
    await store.close()
    await store.close()
    with pytest.raises(StoreClosedError):
        await store.append(envelope("a"))
