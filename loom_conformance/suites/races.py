"""RACE-1 to RACE-20: the runtime's races, played on the store under test by the kit's runtime.

A race is judged in every schedule of its nodes' store calls that it reaches. It must also be able
to fail here: its own wrong runtime has to lose it on the same store, or nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..interleave.explore import Limits
from ..interleave.token import BadToken
from ..lab.stage import Stage
from ..lab.threads import aside
from ..lab.verdict import Failure, Inconclusive, NotOffered, RuleBroken
from ..races.catalogue import RACES
from ..races.drawing import drawn_from, playable, smallest_loss
from ..races.exploring import RaceVerdict, play_race, replay_any
from ..races.play import offered
from ..races.race import Parameters, Race, Reach
from ..races.wrong import WRONG
from .case import rule

EXAMPLES: Final = 3
"""How many drawings of a race's parameters are played at the default depth."""

SECONDS: Final = 60.0
"""How long one variant of a race is explored at the default depth, at most."""


class RacesSuite:
    """Each race holds with the kit's runtime, and is lost with its wrong one."""

    @rule("RACE-1")
    async def test_the_same_chosen_id_is_started_twice_on_one_node(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-2")
    async def test_two_nodes_start_the_same_occurrence(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-3")
    async def test_three_and_four_nodes_start_the_same_occurrence(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-4")
    async def test_a_fresh_id_shares_a_flush_with_a_real_duplicate(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-5")
    async def test_two_starts_of_one_fresh_id_share_a_refused_flush(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-6")
    async def test_a_fresh_id_shares_a_flush_with_a_duplicate_of_its_tenant(
        self, stage: Stage
    ) -> None:
        await _played(stage)

    @rule("RACE-7")
    async def test_in_fenced_mode_the_loser_comes_before_the_bootstrap(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-8")
    async def test_in_fenced_mode_the_loser_comes_after_the_bootstrap(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-9")
    async def test_an_unfenced_starter_goes_on_while_another_node_fences(
        self, stage: Stage
    ) -> None:
        await _played(stage)

    @rule("RACE-10")
    async def test_two_dispatchers_allocate_the_same_first_dispatch(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-11")
    async def test_two_dispatchers_that_retry_allocate_the_same_dispatch(
        self, stage: Stage
    ) -> None:
        await _played(stage)

    @rule("RACE-12")
    async def test_a_start_is_fenced_out_by_a_holder_that_is_dead(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-13")
    async def test_two_nodes_fire_the_same_timer_without_leases(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-14")
    async def test_two_nodes_fire_the_same_timer_with_leases(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-15")
    async def test_a_duplicate_bootstrap_shares_a_flush_with_a_live_run(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-16")
    async def test_the_envelope_id_of_a_bootstrap_is_taken_elsewhere(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-17")
    async def test_a_real_duplicate_behind_a_lagging_replica(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-18")
    async def test_the_process_dies_between_bootstrap_and_body(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-19")
    async def test_the_storage_fails_at_the_bootstrap(self, stage: Stage) -> None:
        await _played(stage)

    @rule("RACE-20")
    async def test_the_conflict_is_of_a_second_copy_of_the_contract(self, stage: Stage) -> None:
        await _played(stage)


async def _played(stage: Stage) -> None:
    """Play the stage's race in all its variants, or in the one schedule that a token names."""
    race = RACES[stage.rule]
    store = (await stage.writer()).store
    await offered(race, stage.backend, store)
    if stage.settings.schedule is not None:
        await _replayed(stage, race, stage.settings.schedule)
        return
    for parameters in race.variants:
        verdict = await _explored(stage, race, parameters)
        _told(stage, verdict)
        stage.showed(schedules=verdict.verdict.schedules)
        told = str(parameters)
        count = verdict.verdict.schedules
        stage.steps.append(
            f"{count} schedule{'s' * (count != 1)}{f' ({told})' if told else ''}: "
            f"{verdict.verdict.finding.value}"
        )
    await _drawn(stage, race, drawn_from(race, stage.backend, store))
    await _bites(stage, race)


async def _explored(stage: Stage, race: Race, parameters: Parameters) -> RaceVerdict:
    depth = stage.settings.depth
    reach = Reach() if depth == "thorough" else None
    seconds = SECONDS * (10 if depth == "thorough" else 1)
    limits = Limits(schedules=1_000_000, seconds=seconds, patience=stage.settings.deadline)
    return await aside(
        lambda: play_race(
            race, stage.backend, parameters, reach=reach, limits=limits, seed=stage.settings.seed
        ),
        3 * seconds,
        race.id,
    )


async def _drawn(stage: Stage, race: Race, values: Mapping[str, Sequence[Any]]) -> None:
    """Play the race with other values for what the ADR leaves open."""
    lost = await aside(
        lambda: smallest_loss(
            race,
            stage.backend,
            values,
            examples=stage.settings.rounds(EXAMPLES),
            choice=stage.settings.seed,
            seconds=SECONDS,
            patience=stage.settings.deadline,
        ),
        stage.settings.rounds(3) * SECONDS,
        f"{race.id} with drawn parameters",
    )
    if lost is not None:
        _told(stage, lost)


async def _replayed(stage: Stage, race: Race, token: str) -> None:
    def again() -> RaceVerdict:
        return replay_any(race, stage.backend, token, playable(race))

    try:
        verdict = await aside(again, SECONDS, race.id)
    except BadToken as error:
        raise NotOffered(f"the schedule that was given is another race's: {error}") from error
    _told(stage, verdict)


async def _bites(stage: Stage, race: Race) -> None:
    """Make sure that the race can be lost on this store.

    Raises:
        Inconclusive: its own wrong runtime does not lose it here.
    """
    wrong = WRONG[race.wrong]
    limits = Limits(seconds=SECONDS, patience=stage.settings.deadline, replays=1)
    verdict = await aside(
        lambda: play_race(
            race,
            stage.backend,
            subject=wrong.subject,
            runtime=wrong.name,
            headline=True,
            reach=Reach(),
            limits=limits,
        ),
        3 * SECONDS,
        f"{race.id} with {wrong.name}",
    )
    if not verdict.lost:
        raise Inconclusive(
            f"the race was not put to the test: {wrong.name}, which is wrong, was not caught "
            f"on this store ({verdict})"
        )


def _told(stage: Stage, verdict: RaceVerdict) -> None:
    """Return if the race holds.

    Raises:
        RuleBroken: a schedule loses it; with the trace, the token and the rule beneath.
        Inconclusive: nothing can be said.
    """
    if verdict.holds:
        return
    example = verdict.verdict.counterexample
    if not verdict.lost or example is None:
        raise Inconclusive(str(verdict))
    loss = verdict.loss
    findings = (example.reason,) if loss is None else loss.findings
    got = "; ".join(findings)
    told = str(verdict.parameters)
    steps = [f"{verdict.race.title}{f' ({told})' if told else ''}"]
    if loss is not None and loss.beneath is not None:
        broken = loss.beneath
        got = f"{got}. Beneath it the store broke {broken.rule}: {broken.operation} → {broken.got}"
        steps.append(f"{broken.rule} allows there: {broken.expected}")
    failure = Failure(stage.rule, verdict.race.rule.promise, got, steps)
    failure.trace = str(example.trace)
    failure.picture = example.trace.to_json()
    if example.token is not None:
        failure.replay = ["--schedule", example.token]
    raise RuleBroken(failure)
