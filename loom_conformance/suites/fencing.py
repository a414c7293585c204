"""FENCE-1 to FENCE-14: a runner that was fenced out stays out."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from ..contract.operations import AcquireFence, Done
from ..lab.burst import burst, must_have_met
from ..lab.calls import Handle, Outcome, settle, short, told_value
from ..lab.paths import WritePath
from ..lab.stage import Log, Stage
from ..lab.values import ENDS, NOT_TOKENS, alike
from ..lab.verdict import NotOffered
from ..spi import (
    FENCE_KEY,
    DuplicateSequenceError,
    EventEnvelope,
    StaleFenceError,
    has_ability,
    is_error,
    is_token,
)
from .case import on_every_write_path, rule


class FencingSuite:
    """Tokens grow, and a write answers for its token before anything else."""

    @rule("FENCE-1")
    async def test_tokens_strictly_grow_over_every_handle(self, stage: Stage) -> None:
        await stage.needs("fencing")
        log = stage.log()
        handles = [await stage.writer(), await stage.connect(), await stage.connect()]
        last = 0
        for _ in range(3):
            for handle in handles:
                last = await _grown(stage, handle, log, last)
        reopened = await stage.connect()
        await _grown(stage, reopened, log, last)

    @rule("FENCE-1")
    async def test_tokens_grow_past_writes_and_refusals(self, stage: Stage) -> None:
        await stage.needs("fencing")
        log = await stage.given_log(2)
        writer = await stage.writer()
        last = 0
        for _ in range(3):
            last = await _grown(stage, writer, log, last)
            log.token = last
            await stage.given_more(log, 1)
            stage.given_refusal(await writer.append(log.envelope(token=None)))
        await stage.holds(log)

    @rule("FENCE-1")
    async def test_tokens_strictly_grow_over_processes(self, stage: Stage) -> None:
        await stage.needs("fencing")
        address = await stage.own_storage()
        name = stage.session.fresh_id()
        last = 0
        async with stage.nursery() as nursery:
            for number in range(3):
                child = await nursery.spawn(f"node-{number}", address)
                await child.connect()
                for _ in range(2):
                    told = await child.do(AcquireFence(name))
                    stage.steps.append(f"process {number} acquires a token → {told}")
                    token = told.value if isinstance(told, Done) else None
                    stage.check(
                        isinstance(token, int) and token > last,
                        f"a token above {last}, whichever process asks",
                        f"process {number} got {told}",
                    )
                    last = token or 0
                await child.quit()

    @rule("FENCE-2")
    async def test_simultaneous_acquires_get_different_tokens(self, stage: Stage) -> None:
        await stage.needs("fencing")
        handles = await stage.contenders(4)
        rounds: list[list[Outcome[int]]] = []
        for turn in range(stage.settings.rounds(5)):
            log = await stage.given_log(turn % 2)
            if turn % 3 == 2:
                await stage.given_fence(log)
            outcomes = await burst([_acquiring(handle, log) for handle in handles * 3])
            rounds.append(outcomes)
            tokens = [stage.returned(one, "every acquire to succeed") for one in outcomes]
            stage.check(
                len(set(tokens)) == len(tokens),
                "simultaneous acquires to get different tokens",
                f"{len(tokens)} acquires got {sorted(tokens)}",
            )
            _later_is_larger(stage, outcomes)
        must_have_met(rounds)

    @rule("FENCE-3")
    @on_every_write_path
    async def test_a_write_with_an_older_token_is_refused(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(1, fenced=True)
        for _ in range(2):
            old = log.token
            await stage.given_fence(log)
            await stage.refused(
                log,
                lambda sequence, old=old: log.envelope(sequence, token=old),  # type: ignore[misc]
                StaleFenceError,
            )

    @rule("FENCE-3")
    @on_every_write_path
    async def test_an_older_token_is_refused_although_it_wrote_before(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(0, fenced=True)
        old = log.token
        await stage.accepted(log)
        other = await stage.connect(name="other")
        log.token = stage.given(await other.acquire_fence(log.execution_id))
        await stage.refused(
            log, lambda sequence: log.envelope(sequence, token=old), StaleFenceError
        )

    @rule("FENCE-3")
    async def test_tokens_are_compared_as_numbers(self, stage: Stage) -> None:
        log = await stage.given_log(1, fenced=True)
        writer = await stage.writer()
        for _ in range(11):
            old = log.token
            await stage.given_fence(log)
            outcome = await writer.append(log.envelope(token=old))
            if not is_error(outcome.error, StaleFenceError):
                stage.broken(f"{old} to be stale where {log.token} is current", outcome.line())
        await stage.holds(log, expected="a stale write to leave no trace")

    @rule("FENCE-4")
    @on_every_write_path
    async def test_a_write_without_a_token_is_refused_once_there_is_one(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(2)
        await stage.given_fence(log)
        for _ in range(2):
            await stage.refused(
                log, lambda sequence: log.envelope(sequence, token=None), StaleFenceError
            )

    @rule("FENCE-5")
    @on_every_write_path
    async def test_a_write_with_the_current_token_is_accepted(
        self, stage: Stage, path: WritePath
    ) -> None:
        await stage.needs("fencing")
        log = stage.log()
        for _ in range(3):
            await stage.accepted(log, expected="a write before the first acquire to need no token")
        for _ in range(2):
            await stage.given_fence(log)
            for _ in range(2):
                await stage.accepted(log, expected="a write with the current token to be accepted")

    @rule("FENCE-6")
    @on_every_write_path
    async def test_tokens_of_different_executions_are_independent(
        self, stage: Stage, path: WritePath
    ) -> None:
        await stage.needs("fencing")
        first = await stage.given_log(1, fenced=True)
        free = await stage.given_log(1)
        second = await stage.given_log(1, fenced=True)
        for _ in range(3):
            await stage.given_fence(second)
        for log in (first, free, second):
            await stage.accepted(log, expected="one execution's fence to leave others alone")

    @rule("FENCE-6")
    async def test_tokens_belong_to_ids_by_code_points(self, stage: Stage) -> None:
        await stage.needs("fencing")
        writer = await stage.writer()
        unique = stage.session.fresh_id()
        ids = (f"{unique}/{number}" for number in itertools.count())
        for group in alike(unique):
            fenced, *others = (Log(name) for name in group)
            first = fenced.envelope(id=next(ids))
            stage.given(await writer.append(first))
            fenced.wrote(first)
            fenced.token = stage.given(await writer.acquire_fence(fenced.execution_id))
            for log in others:
                outcome = await writer.append(log.envelope(id=next(ids)))
                stage.returned(
                    outcome, f"a fence on {short(fenced.execution_id)} not to be this one's"
                )
            outcome = await writer.append(fenced.envelope(id=next(ids)))
            stage.returned(outcome, "writes to ids that look like this one's not to move its fence")

    @rule("FENCE-6")
    async def test_a_fence_of_one_storage_binds_no_other(self, stage: Stage) -> None:
        await stage.needs("fencing")
        log = await stage.given_log(1)
        stage.given(await (await stage.writer()).acquire_fence(log.execution_id))
        elsewhere = await stage.connect(await stage.own_storage(), name="elsewhere")
        outcome = await elsewhere.append(Log(log.execution_id).envelope())
        stage.returned(outcome, "a fence of another storage not to bind this one")
        stage.logs.clear()

    @rule("FENCE-7")
    @on_every_write_path
    async def test_a_stale_duplicate_is_stale_and_not_duplicate(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(2, fenced=True)
        old = log.token
        await stage.given_fence(log)
        taken = log.envelopes[0]
        for token in (old, None):
            for offender in (
                log.envelope(0, token=token),
                log.envelope(0, token=token, id=f"rival-{log.execution_id}"),
            ):
                await stage.refused(
                    log,
                    lambda _, offender=offender: offender,  # type: ignore[misc]
                    StaleFenceError,
                )
            await stage.refused(
                log,
                lambda sequence, token=token: log.envelope(  # type: ignore[misc]
                    sequence, token=token, id=taken.id
                ),
                StaleFenceError,
            )

    @rule("FENCE-8")
    @on_every_write_path
    async def test_once_an_acquire_has_returned_no_older_token_lands(
        self, stage: Stage, path: WritePath
    ) -> None:
        await stage.needs("fencing")
        await _race_with_acquire(stage, fenced_before=True)

    @rule("FENCE-8")
    @on_every_write_path
    async def test_once_the_first_acquire_has_returned_no_missing_token_lands(
        self, stage: Stage, path: WritePath
    ) -> None:
        await stage.needs("fencing")
        await _race_with_acquire(stage, fenced_before=False)

    @rule("FENCE-9")
    async def test_each_envelope_of_a_batch_answers_for_its_own_execution(
        self, stage: Stage
    ) -> None:
        await _needs_fenced_batches(stage)
        writer = await stage.writer()
        first = await stage.given_log(1, fenced=True)
        second = await stage.given_log(1, fenced=True)
        await stage.given_fence(second)
        free = await stage.given_log(1)
        batch = [first.envelope(), second.envelope(), free.envelope()]
        stage.returned(
            await writer.append_batch(batch), "a batch with each execution's own token to pass"
        )
        for log, envelope in zip((first, second, free), batch, strict=True):
            log.wrote(envelope)
        await stage.holds(first, second, free)

    @rule("FENCE-9")
    async def test_one_stale_envelope_refuses_the_whole_batch(self, stage: Stage) -> None:
        await _needs_fenced_batches(stage)
        writer = await stage.writer()
        for position in range(3):
            for given in ("old", "missing", "another execution's"):
                logs = [await stage.given_log(1, fenced=True) for _ in range(3)]
                stale = logs[position]
                old = stale.token
                for _ in range(2):
                    await stage.given_fence(stale)
                token = {"old": old, "missing": None}.get(given, logs[position - 1].token)
                batch = [log.envelope() for log in logs]
                batch[position] = stale.envelope(token=token)
                outcome = await writer.append_batch(batch)
                if not is_error(outcome.error, StaleFenceError):
                    stage.broken(
                        f"the batch to be refused: envelope {position} has the {given} token",
                        outcome.line(),
                    )
                await stage.holds(*logs, expected="a refused batch to leave no trace")
                await stage.still_good(writer, stale)

    @rule("FENCE-9")
    async def test_two_envelopes_of_one_execution_answer_each_for_itself(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        await stage.needs("batch")
        writer = await stage.writer()
        for position in range(3):
            log = await stage.given_log(1, fenced=True)
            old = log.token
            await stage.given_fence(log)
            batch = [
                log.envelope(log.next + place, token=old if place == position else "current")
                for place in range(3)
            ]
            outcome = await writer.append_batch(batch)
            if not is_error(outcome.error, StaleFenceError):
                stage.broken(f"the batch to be refused for envelope {position}", outcome.line())
            await stage.holds(log, expected="a refused batch to leave no trace")
            await stage.still_good(writer, log)

    @rule("FENCE-10")
    @on_every_write_path
    async def test_an_execution_never_written_can_be_fenced(
        self, stage: Stage, path: WritePath
    ) -> None:
        await stage.needs("fencing")
        log = stage.log()
        outcome = await (await stage.writer()).acquire_fence(log.execution_id)
        log.token = stage.returned(outcome, "an execution that was never written to be fenced")
        await stage.holds(log, expected="a fence not to write an envelope")
        await stage.refused(
            log, lambda sequence: log.envelope(sequence, token=None), StaleFenceError
        )

    @rule("FENCE-11")
    @on_every_write_path
    async def test_the_current_token_outlives_the_handle(
        self, stage: Stage, path: WritePath
    ) -> None:
        await stage.needs("fencing")
        log = stage.log()
        leaving = await stage.connect(name="leaving")
        old = stage.given(await leaving.acquire_fence(log.execution_id))
        log.token = stage.given(await leaving.acquire_fence(log.execution_id))
        stage.given(await leaving.close())
        for token in (old, None):
            await stage.refused(
                log,
                lambda sequence, token=token: log.envelope(sequence, token=token),  # type: ignore[misc]
                StaleFenceError,
            )

    @rule("FENCE-11")
    async def test_the_current_token_outlives_the_process_that_acquired_it(
        self, stage: Stage
    ) -> None:
        await stage.needs("fencing")
        address = await stage.own_storage()
        log = Log(stage.session.fresh_id())
        async with stage.nursery() as nursery:
            child = await nursery.spawn("holder", address)
            await child.connect()
            tokens = [await child.do(AcquireFence(log.execution_id)) for _ in range(2)]
            await child.kill()
        old, current = (told.value if isinstance(told, Done) else None for told in tokens)
        handle = await stage.connect(address, name="after")
        for given in (old, None):
            outcome = await handle.append(log.envelope(token=given))
            if not is_error(outcome.error, StaleFenceError):
                stage.broken(
                    f"StaleFenceError, since a process that was killed had acquired {current}",
                    outcome.line(),
                )
        stage.returned(
            await handle.append(log.envelope(token=current)), "the current token to stay good"
        )

    @rule("FENCE-11")
    async def test_a_fence_outlives_the_end_of_its_execution(self, stage: Stage) -> None:
        await stage.needs("fencing")
        writer = await stage.writer()
        for kind in ENDS:
            log = await stage.given_log(1, fenced=True)
            old = log.token
            token = await stage.given_fence(log)
            ended = log.envelope(kind=kind)
            stage.returned(await writer.append(ended), f"a {kind} under the token to be stored")
            log.wrote(ended)
            for given in (old, None):
                outcome = await writer.append(log.envelope(token=given))
                if not is_error(outcome.error, StaleFenceError):
                    stage.broken(f"StaleFenceError after a {kind} as before", outcome.line())
            newer = await stage.given_fence(log)
            stage.check(newer > token, f"a token above {token} after a {kind}", f"it is {newer}")

    @rule("FENCE-12")
    @on_every_write_path
    async def test_what_is_no_token_never_passes_for_one(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(1, fenced=True)
        current = log.token
        for elsewhere in ({"Fence": current}, {"fence ": current}, {"nested": {"fence": current}}):
            await stage.refused(
                log,
                lambda sequence, elsewhere=elsewhere: log.envelope(  # type: ignore[misc]
                    sequence, token=None, metadata=elsewhere
                ),
                StaleFenceError,
                target=f"metadata of {elsewhere}, where the token is {current}",
            )
        await stage.refused(
            log,
            lambda sequence: log.envelope(sequence, token=None, metadata={"fence": None}),
            StaleFenceError,
            ValueError,
            target=f"a fence of None, where the token is {current}",
        )
        false_tokens = [*NOT_TOKENS, str(current), [current], {"fence": current}]
        if current is not None:
            false_tokens += [-current, f" {current} ", current + 0.5]
        for given in false_tokens:
            await stage.refused(
                log,
                lambda sequence, given=given: log.envelope(sequence, token=given),  # type: ignore[misc]
                StaleFenceError,
                ValueError,
                target=f"a fence of {given!r}, where the token is {current}",
            )

    @rule("FENCE-13")
    @on_every_write_path
    async def test_a_token_that_was_never_handed_out_is_refused(
        self, stage: Stage, path: WritePath
    ) -> None:
        log = await stage.given_log(1, fenced=True)
        for ahead in (1, 1000, 2**40):
            token = (log.token or 0) + ahead
            await stage.refused(
                log,
                lambda sequence, token=token: log.envelope(sequence, token=token),  # type: ignore[misc]
                StaleFenceError,
            )
        unfenced = await stage.given_log(1)
        await stage.refused(
            unfenced, lambda sequence: unfenced.envelope(sequence, token=1), StaleFenceError
        )

    @rule("FENCE-14")
    @on_every_write_path
    async def test_a_store_without_fencing_refuses_a_write_that_carries_a_token(
        self, stage: Stage, path: WritePath
    ) -> None:
        if has_ability((await stage.writer()).store, "fencing"):
            raise NotOffered("the store fences")
        log = await stage.given_log(1)
        await stage.refused(
            log,
            lambda sequence: log.envelope(sequence, metadata={FENCE_KEY: 1}),
            StaleFenceError,
            ValueError,
        )


async def _grown(stage: Stage, handle: Handle, log: Log, last: int) -> int:
    outcome = await handle.acquire_fence(log.execution_id)
    token = stage.returned(outcome, "an acquire to succeed")
    stage.check(
        is_token(token) and token > last,
        f"an int above {last}, the last token, and not beyond 2**53 - 1",
        outcome.line(),
    )
    return token


def _acquiring(handle: Handle, log: Log) -> Callable[[], Awaitable[Outcome[int]]]:
    return lambda: handle.acquire_fence(log.execution_id)


def _later_is_larger(stage: Stage, outcomes: list[Outcome[int]]) -> None:
    """An acquire that began after another had returned must get the larger token."""
    for one in outcomes:
        for other in outcomes:
            if one.ended < other.began:
                stage.check(
                    (one.value or 0) < (other.value or 0),
                    "a later acquire to get the larger token",
                    f"{one.line()}, then {other.line()}",
                )


async def _race_with_acquire(stage: Stage, *, fenced_before: bool) -> None:
    """Writers under the old token (or none) against one acquire.

    Each has a handle of its own, but one that shares the acquire's: two calls on one connection
    may end up in one transaction.

    Whatever was acknowledged before the acquire returned is in a read made right after it; nothing
    more may appear later. The writers want slots of their own where the store takes gaps.
    """
    apart = stage.backend.sparse_sequences
    fencer, *others = await stage.contenders(4)
    writers = [*others, fencer]
    rounds: list[list[Outcome[Any]]] = []
    for turn in range(stage.settings.rounds(4)):
        hot = await stage.given_log(1, fenced=fenced_before)
        under = "without a token" if hot.token is None else f"under the token {hot.token}"
        rivals = [
            hot.envelope(hot.next + number * apart, id=f"{hot.execution_id}-rival-{number}")
            for number in range(4)
        ]
        at_acquire: list[EventEnvelope] = []

        async def acquire(hot: Log = hot, seen: list[EventEnvelope] = at_acquire) -> Outcome[Any]:
            call = f"{fencer.name}.acquire_fence({short(hot.execution_id)}), and a read at once"
            outcome = await settle(
                call,
                "acquire_fence",
                lambda: _acquired_and_read(fencer, hot),
                stage.session.allowance("acquire_fence"),
            )
            hot.token, found = stage.returned(
                outcome, "an acquire under contention, and a read after it, to succeed"
            )
            seen += found
            stage.steps.append(f"{call} → {hot.token}, {told_value(found)}")
            return outcome

        calls: list[Callable[[], Awaitable[Outcome[Any]]]] = [
            stage.writing(writer, rival) for writer, rival in zip(writers, rivals, strict=True)
        ]
        place = len(calls) * (turn % 2)  # first, so that writes come after it, then last
        calls.insert(place, acquire)
        outcomes = await burst(calls)
        rounds.append(list(outcomes))
        del outcomes[place]
        _lost_in_order(stage, outcomes)
        hot.envelopes = at_acquire
        await stage.holds(hot, expected=f"nothing {under} to land after the acquire returned")
        landed = {envelope.id for envelope in at_acquire}
        for rival, outcome in zip(rivals, outcomes, strict=True):
            stage.check(
                outcome.ok == (rival.id in landed),
                "a write acknowledged in the race to be in the log, and one refused not to be",
                outcome.line(),
            )
        await stage.still_good(fencer, hot)
    must_have_met(rounds)


async def _acquired_and_read(handle: Handle, log: Log) -> tuple[int, list[EventEnvelope]]:
    """The store's own calls: between the acquire and the read no other call gets a turn."""
    store: Any = handle.store
    token: int = await store.acquire_fence(log.execution_id)
    return token, list(await store.read_from(log.execution_id))


def _lost_in_order(stage: Stage, outcomes: list[Outcome[Any]]) -> None:
    for outcome in outcomes:
        if outcome.error is not None and not is_error(
            outcome.error, StaleFenceError, DuplicateSequenceError
        ):
            stage.broken("a stale or a duplicate write, where it lost", outcome.line())


async def _needs_fenced_batches(stage: Stage) -> None:
    await stage.needs("fencing")
    await stage.needs("batch")
    if stage.backend.batch_scope != "store":
        raise NotOffered('a batch holds one execution here (batch_scope = "execution")')
