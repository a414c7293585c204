"""What can be asked of a run's evidence; each check yields what it found amiss, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..runtime import (
    CorruptLogError,
    ExecutionAlreadyExistsError,
    ExecutionNotFoundError,
    StartFencedOutError,
    StorageWriteError,
)
from ..spi import is_error
from .evidence import Evidence, listed

Finder = Callable[[Evidence], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold in every run.

    Attributes:
        says: what must hold, as a sentence.
        find: yields a sentence for everything amiss.
    """

    says: str
    find: Finder


def times(count: int) -> str:
    """How often, in words."""
    return {0: "not once", 1: "once", 2: "twice"}.get(count, f"{count} times")


def effect_runs(execution_id: str, step: str, expected: int = 1) -> Check:
    """A step's effect runs this often over the whole race."""

    def find(evidence: Evidence) -> Iterator[str]:
        nodes = evidence.ran(execution_id, step)
        if len(nodes) != expected:
            where = f": {listed(nodes)}" if nodes else ""
            yield f"the effect {step!r} ran {times(len(nodes))}{where}"

    says = f"runs {times(expected)}" if expected else "does not run again"
    return Check(f"the effect {step!r} {says}", find)


def effect_runs_at_most(execution_id: str, step: str, most: int) -> Check:
    """A step's effect runs at least once and at most this often."""

    def find(evidence: Evidence) -> Iterator[str]:
        nodes = evidence.ran(execution_id, step)
        if not 1 <= len(nodes) <= most:
            where = f": {listed(nodes)}" if nodes else ""
            yield f"the effect {step!r} ran {times(len(nodes))}{where}"

    return Check(f"the effect {step!r} runs at least once and at most {times(most)}", find)


def nothing_ran(execution_id: str) -> Check:
    """No effect of the execution ran and nothing of it was told."""

    def find(evidence: Evidence) -> Iterator[str]:
        nodes = evidence.ran(execution_id)
        if nodes:
            yield f"an effect ran {times(len(nodes))} though nothing was started: {listed(nodes)}"
        told = [node for node, envelope in evidence.told if envelope.execution_id == execution_id]
        if told:
            yield f"on_event was told of a start that was refused: {listed(told)}"

    return Check("nothing ran and nothing was told", find)


def started_once(execution_id: str) -> Check:
    """Exactly one bootstrap was acknowledged."""

    def find(evidence: Evidence) -> Iterator[str]:
        nodes = [
            call.node for call, envelope in evidence.writes(execution_id) if envelope.sequence == 0
        ]
        if len(nodes) != 1:
            where = f": {listed(nodes)}" if nodes else ""
            yield f"{len(nodes)} bootstraps of the execution were acknowledged{where}"

    return Check("the store acknowledges one bootstrap", find)


def silent() -> Check:
    """No node's `on_error` was told anything."""

    def find(evidence: Evidence) -> Iterator[str]:
        for node, error in evidence.errors:
            yield f"on_error of {node} was told {type(error).__name__}: {error}"

    return Check("on_error is silent", find)


def told_is_durable(*execution_ids: str) -> Check:
    """Whatever `on_event` was told is in the log."""

    def find(evidence: Evidence) -> Iterator[str]:
        for execution_id in execution_ids:
            durable = {each.sequence: each for each in evidence.logs[execution_id]}
            doomed: dict[str, list[int]] = {}
            again: dict[str, list[int]] = {}
            seen: set[int] = set()
            for node, envelope in evidence.told:
                if envelope.execution_id != execution_id:
                    continue
                place = envelope.sequence
                if durable.get(place) != envelope:
                    doomed.setdefault(node, []).append(place)
                elif place in seen:
                    # Two nodes build the same bootstrap, byte for byte.
                    again.setdefault(node, []).append(place)
                seen.add(place)
            for node, places in doomed.items():
                shown = ", ".join(map(str, places))
                yield f"on_event of {node} was told of {shown}, which never became durable"
            for node, places in again.items():
                shown = ", ".join(map(str, places))
                yield f"on_event of {node} was told of {shown}, which another run had told before"

    return Check("on_event tells only what is durable, and once", find)


def ends_if_started(execution_id: str, *statuses: str) -> Check:
    """As `ends`, for an execution that need not have been started."""
    check = ends(execution_id, *statuses)

    def find(evidence: Evidence) -> Iterator[str]:
        if evidence.logs[execution_id]:
            yield from check.find(evidence)

    return Check(check.says, find)


def ends(execution_id: str, *statuses: str) -> Check:
    """The log in the end folds to one of these states."""

    def find(evidence: Evidence) -> Iterator[str]:
        state = evidence.state(execution_id)
        if isinstance(state, CorruptLogError):
            yield str(state)
        elif state is None:
            yield "the execution was never started"
        elif state.status not in statuses:
            yield f"the execution is left {state.status} and nobody drives it"

    return Check(f"the execution ends {' or '.join(statuses)}", find)


def exists_told(*acts: str, winners: int = 1) -> Check:
    """Of these acts so many start the execution, and the others are told that it exists."""

    def find(evidence: Evidence) -> Iterator[str]:
        won = 0
        for act in acts:
            end = evidence.ends.get(act)
            if end is None:
                yield f"{act} never ended"
            elif end.error is None:
                won += 1
            elif not is_error(end.error, ExecutionAlreadyExistsError):
                yield f"{act} got {end}"
        if won != winners:
            yield f"{won} of {len(acts)} starts went through, and {winners} should have"

    one = "one start goes through" if winners == 1 else f"{winners} starts go through"
    return Check(f"{one}, and every other raises ExecutionAlreadyExistsError", find)


def act_raises(act: str, error: type[BaseException], cause: type[BaseException] | None) -> Check:
    """An act ends with this error, and with this cause where one is given."""
    said = error.__name__ + (f" from {cause.__name__}" if cause else "")

    def caused(raised: BaseException | None) -> bool:
        return cause is None or (raised is not None and is_error(raised.__cause__, cause))

    def find(evidence: Evidence) -> Iterator[str]:
        end = evidence.ends.get(act)
        if end is None:
            yield f"{act} never ended"
        elif not is_error(end.error, error) or not caused(end.error):
            yield f"{act} got {end}, not {said}"

    return Check(f"{act} raises {said}", find)


def act_succeeds(act: str) -> Check:
    """An act ends without an error."""

    def find(evidence: Evidence) -> Iterator[str]:
        end = evidence.ends.get(act)
        if end is None:
            yield f"{act} never ended"
        elif end.error is not None:
            yield f"{act} got {end}"

    return Check(f"{act} succeeds", find)


def storage_error_told(node: str) -> Check:
    """The node's `on_storage_error` was told a `StorageWriteError`."""

    def find(evidence: Evidence) -> Iterator[str]:
        told = [error for where, error in evidence.storage_errors if where == node]
        if len(told) != 1 or not is_error(told[0], StorageWriteError):
            yield f"on_storage_error of {node} was told {times(len(told))}"

    return Check("on_storage_error is told once", find)


def tries_of(execution_id: str, sequence: int, expected: int) -> Check:
    """The slot is tried this often."""

    def find(evidence: Evidence) -> Iterator[str]:
        tries = len(evidence.tries(execution_id, sequence))
        if tries != expected:
            yield f"sequence {sequence} was tried {times(tries)}, and {times(expected)} was right"

    return Check(f"sequence {sequence} is tried {times(expected)}: one append, one retry", find)


def fence_holds(execution_id: str) -> Check:
    """Nothing lands under an older token, or without one, once a token was handed out."""

    def find(evidence: Evidence) -> Iterator[str]:
        for call, envelope, given, current in evidence.fenced_writes(execution_id):
            if current is not None and (given is None or given < current):
                token = "no token" if given is None else f"token {given}"
                yield (
                    f"{call.node} wrote sequence {envelope.sequence} under {token} "
                    f"after token {current} was handed out"
                )

    return Check("nothing lands under an older token, or without one where there is one", find)


def acknowledged_is_kept(*execution_ids: str) -> Check:
    """Whatever a runtime was told to be durable is in the log."""

    def find(evidence: Evidence) -> Iterator[str]:
        for envelope in evidence.acknowledged:
            if envelope.execution_id not in execution_ids:
                continue
            if envelope not in evidence.logs[envelope.execution_id]:
                yield (
                    f"sequence {envelope.sequence} ({envelope.kind}) was acknowledged "
                    "and is not in the log"
                )

    return Check("nothing that was acknowledged is lost", find)


def superseded_is_let_go(execution_id: str) -> Check:
    """No dispatcher fences an execution again that another has."""

    def find(evidence: Evidence) -> Iterator[str]:
        retried = evidence.retried_though_superseded(execution_id)
        if retried:
            tokens = evidence.tokens(execution_id)
            yield (
                f"superseded dispatches were tried again ({listed(retried)}): "
                f"tokens went {tokens[0]} to {tokens[-1]}"
            )

    return Check("a superseded dispatch is not tried again", find)


def no_ping_pong(execution_id: str, step: str, most: int) -> Check:
    """Dispatchers do not fence each other out again and again, paying for the effect each time."""

    def find(evidence: Evidence) -> Iterator[str]:
        nodes, tokens = evidence.ran(execution_id, step), evidence.tokens(execution_id)
        if len(nodes) > most:
            yield (
                f"the effect {step!r} ran {times(len(nodes))} ({listed(nodes)}) "
                f"while tokens went {tokens[0]} to {tokens[-1]}"
            )

    return Check(f"the effect {step!r} runs at most {times(most)} however often it is fenced", find)


def fenced_out_is_retryable(execution_id: str) -> Check:
    """A start that failed with sequence 0 absent says so, and stays retryable."""

    def find(evidence: Evidence) -> Iterator[str]:
        for node, error in evidence.storage_errors:
            if (
                is_error(error, StorageWriteError)
                and getattr(error, "sequence", None) == 0
                and not is_error(error.__cause__, StartFencedOutError)
            ):
                yield f"the start in {node} failed with {type(error.__cause__).__name__}"

    return Check("a start that is fenced out fails with StartFencedOutError", find)


def cancelled(act: str) -> Check:
    """A cancel ends the execution, finds it ended, or finds that there is none."""

    def find(evidence: Evidence) -> Iterator[str]:
        end = evidence.ends.get(act)
        if end is None:
            yield f"{act} never ended"
        elif end.error is not None and not is_error(end.error, ExecutionNotFoundError):
            yield f"{act} got {end}"

    return Check("a cancel is not beaten by the run that it cancels", find)


def bootstrap_told_once(execution_id: str) -> Check:
    """The bootstrap is told where it became durable, and nowhere else."""

    def find(evidence: Evidence) -> Iterator[str]:
        told = [
            (node, envelope)
            for node, envelope in evidence.told
            if envelope.execution_id == execution_id and envelope.sequence == 0
        ]
        if len(told) > 1:
            yield f"the bootstrap was told {times(len(told))}: {listed(node for node, _ in told)}"
        for node, envelope in told:
            if envelope not in evidence.logs[execution_id]:
                yield f"on_event of {node} was told of a bootstrap that never became durable"

    return Check("the bootstrap is told once, where it is durable", find)


def durable_before_effects(execution_id: str) -> Check:
    """No effect runs before sequence 0 is durable."""

    def find(evidence: Evidence) -> Iterator[str]:
        for effect in evidence.effects:
            if effect.execution_id == execution_id and not any(
                envelope.sequence == 0 and envelope.execution_id.endswith(execution_id)
                for call in evidence.calls[: effect.after]
                for envelope in call.written
            ):
                yield f"the effect {effect.step!r} ran in {effect.node} with no log of it"

    return Check("sequence 0 is durable before the first effect", find)
