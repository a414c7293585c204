"""The whole contract at once: random programs over several handles, judged by the model store.

A Hypothesis state machine mixes writes, conflicts, fences, reads and reopened handles, with values
from the whole domain. Its rules are plain functions that run on the session's own event loop.
The rule that a wrong answer breaks is the one that the model names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    run_state_machine_as_test,
)
from hypothesis.stateful import rule as action

from ..contract.model import Oracle, StoreModel
from ..contract.operations import (
    AcquireFence,
    Append,
    AppendBatch,
    Done,
    Operation,
    ReadFrom,
    ReadRange,
    Refused,
)
from ..lab.calls import Handle, Outcome
from ..lab.quarters import away_from_home
from ..lab.session import Session
from ..lab.stage import Stage
from ..lab.values import json_values, metadata, texts, timestamps
from ..lab.verdict import Failure, RuleBroken
from ..spi import FENCE_KEY, EventEnvelope
from .case import on_the_session, rule

HANDLES = 2
EXECUTIONS = 3
EXAMPLES = 12
STEPS = 25

places = st.sampled_from(["next", "next", "next", "taken", "gap"])
ids = st.sampled_from(["own", "own", "own", "taken", "drawn"])
tokens = st.sampled_from(["current", "current", "current", "none", "old", "ahead"])
values = st.tuples(texts(255), timestamps(), json_values(), metadata())


class ModelSuite:
    """Answers of the store against answers of the model."""

    @rule("APPEND-1")
    @on_the_session
    def test_mixed_operations_on_several_handles_agree_with_the_model(
        self, session: Session
    ) -> None:
        class Bound(Program):
            """A program for this session's backend."""

        Bound.session = session
        Bound.broken = []
        machine = seeded(session.settings.seed)(Bound)
        phases = [Phase.generate]
        if session.settings.depth != "quick":
            phases.append(Phase.shrink)
        with away_from_home():
            try:
                run_state_machine_as_test(
                    machine,
                    settings=settings(
                        max_examples=session.settings.rounds(EXAMPLES),
                        stateful_step_count=STEPS,
                        deadline=None,
                        database=None,
                        phases=phases,
                        print_blob=False,
                        suppress_health_check=list(HealthCheck),
                    ),
                )
            except Flaky:
                # A wrong answer that does not come again when the program is played once more,
                # since the store itself remembers: what was seen counts.
                if not Bound.broken:
                    raise
                raise Bound.broken[-1] from None


class Program(RuleBasedStateMachine):
    """One run: some executions, several handles, one oracle that keeps up with the store."""

    session: Session
    broken: list[RuleBroken]

    def __init__(self) -> None:
        super().__init__()
        session = self.session
        self.stage: Stage = session.stage("APPEND-1", "model")
        unique = session.fresh_id()
        self.executions = [f"{unique}.{number}" for number in range(EXECUTIONS)]
        self.tokens: dict[str, list[int]] = {}
        self.written: list[EventEnvelope] = []
        self.handles: list[Handle] = [
            self.run(self.stage.connect(name=f"h{number}")) for number in range(HANDLES)
        ]
        abilities = self.run(self.stage.abilities())
        self.able = abilities
        backend = session.backend
        self.oracle = Oracle(
            StoreModel(
                envelope_ids=backend.envelope_ids,
                sparse_sequences=backend.sparse_sequences,
                batch_scope=backend.batch_scope,
                max_batch=backend.max_batch,
                fencing="fencing" in abilities,
            )
        )

    def run(self, work: Awaitable[Any]) -> Any:
        """Run one piece of work on the session's loop."""
        return self.session.drive(self.stage, work)

    def teardown(self) -> None:
        """Close this run's handles."""
        self.run(self.stage.finish())

    @action(
        handle=st.integers(0, HANDLES - 1),
        execution=st.integers(0, EXECUTIONS - 1),
        place=places,
        id=ids,
        token=tokens,
        value=values,
    )
    def append(
        self, handle: int, execution: int, place: str, id: str, token: str, value: Any
    ) -> None:
        """Write one envelope, often a good one."""
        envelope = self.envelope(self.executions[execution], place, id, token, value, 0)
        outcome = self.run(self.handles[handle].append(envelope))
        self.judge(Append(envelope), outcome)

    @precondition(lambda self: "batch" in self.able)
    @action(
        handle=st.integers(0, HANDLES - 1),
        execution=st.integers(0, EXECUTIONS - 1),
        other=st.integers(0, EXECUTIONS - 1),
        parts=st.lists(st.tuples(places, ids, tokens, values), max_size=5),
    )
    def append_batch(self, handle: int, execution: int, other: int, parts: list[Any]) -> None:
        """Write several envelopes, over one execution or two."""
        names = [self.executions[execution], self.executions[other]]
        if self.session.backend.batch_scope == "execution":
            names = names[:1]
        ahead = dict.fromkeys(names, 0)
        batch = []
        for number, (place, id, token, value) in enumerate(parts):
            name = names[number % len(names)]
            batch.append(self.envelope(name, place, id, token, value, ahead[name]))
            ahead[name] += 1
        outcome = self.run(self.handles[handle].append_batch(batch))
        self.judge(AppendBatch(batch), outcome)

    @action(
        handle=st.integers(0, HANDLES - 1),
        execution=st.integers(0, EXECUTIONS),
        first=st.integers(0, 6),
    )
    def read_from(self, handle: int, execution: int, first: int) -> None:
        """Read an execution, or one that nobody wrote."""
        name = [*self.executions, f"{self.executions[0]}.x"][execution]
        outcome = self.run(self.handles[handle].read_from(name, first))
        self.judge(ReadFrom(name, first), outcome)

    @precondition(lambda self: "range" in self.able)
    @action(
        handle=st.integers(0, HANDLES - 1),
        execution=st.integers(0, EXECUTIONS - 1),
        first=st.integers(0, 6),
        last=st.integers(0, 8),
    )
    def read_range(self, handle: int, execution: int, first: int, last: int) -> None:
        """Read a closed interval."""
        name = self.executions[execution]
        outcome = self.run(self.handles[handle].read_range(name, first, last))
        self.judge(ReadRange(name, first, last), outcome)

    @precondition(lambda self: "fencing" in self.able)
    @action(handle=st.integers(0, HANDLES - 1), execution=st.integers(0, EXECUTIONS - 1))
    def acquire_fence(self, handle: int, execution: int) -> None:
        """Fence an execution."""
        name = self.executions[execution]
        outcome = self.run(self.handles[handle].acquire_fence(name))
        self.judge(AcquireFence(name), outcome)
        if outcome.ok:
            self.tokens.setdefault(name, []).append(outcome.value)

    @action(handle=st.integers(0, HANDLES - 1))
    def reopen(self, handle: int) -> None:
        """Close one handle and connect another in its place."""
        self.run(self.handles[handle].close())
        self.handles[handle] = self.run(self.stage.connect(name=f"h{handle}"))

    def envelope(
        self, name: str, place: str, id: str, token: str, value: Any, ahead: int
    ) -> EventEnvelope:
        """An envelope as the drawn words say, from what the oracle knows by now."""
        kind, timestamp, payload, extra = value
        log = self.oracle.state.log(name)
        end = log.next_sequence() + ahead
        sequence = {"next": end, "taken": max(0, end - 1 - ahead), "gap": end + 3}[place]
        taken = self.written[-1].id if self.written else f"{name}-{sequence}"
        own = f"{name}-{sequence}"
        envelope_id = {"own": own, "taken": taken, "drawn": f"{name}|{kind}"[:300]}[id]
        more = dict(extra)
        held = self.tokens.get(name, [])
        given = {
            "current": held[-1] if held else None,
            "none": None,
            "old": held[0] if held else None,
            "ahead": held[-1] + 5 if held else None,
        }[token]
        if given is not None:
            more[FENCE_KEY] = given
        return EventEnvelope(name, sequence, envelope_id, kind, timestamp, payload, more)

    def judge(self, operation: Operation, outcome: Outcome[Any]) -> None:
        """Compare the store's answer with what the model allows."""
        error = outcome.error
        if error is None:
            value = outcome.value
            told: Done | Refused = Done(tuple(value) if isinstance(value, Sequence) else value)
            if isinstance(operation, Append | AppendBatch):
                self.written += operation.envelopes
        else:
            told = Refused.of(error)
        judgement = self.oracle.judge(operation, told)
        if not judgement:
            broken = RuleBroken(
                Failure(
                    judgement.rule or "APPEND-1",
                    judgement.allowed,
                    f"{outcome.call} → {judgement.got}",
                    list(self.stage.steps),
                )
            )
            self.broken.append(broken)
            raise broken
