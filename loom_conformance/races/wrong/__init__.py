"""Everything that must lose a race: earlier behaviour of the runtime, and slips that are near.

Each entry names its fault, the paragraph that forbids it, and exactly the races that it loses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...runtime import WorkflowRuntime
from ..scene import Subject
from . import going_on, starts, stores
from .parts import WithDispatcher, WithRuntime, WithSupervisor, WithTimers, WithWorker


@dataclass(frozen=True, slots=True)
class Wrong:
    """A runtime, a store or a coalescer with one fault.

    Attributes:
        name: how it is called on the command line.
        fault: what it does wrong, one sentence.
        source: the paragraph of ADR 0103 that says so.
        loses: the ids of the races that it loses, all of them.
        subject: what the races are run with.
        part: what is wrong: `"runtime"`, `"store"` or `"coalescer"`.
    """

    name: str
    fault: str
    source: str
    loses: frozenset[str]
    subject: Subject
    part: str = "runtime"


def _loses(*numbers: int) -> frozenset[str]:
    return frozenset(f"RACE-{number}" for number in numbers)


def _runtime(runtime_class: type[WorkflowRuntime]) -> Subject:
    return Subject(WithRuntime(runtime_class))


_ALL: Final = (
    Wrong(
        "enqueued-bootstrap",
        "A start only enqueues sequence 0 and runs the body on the next line; nobody looks first.",
        "Context: the defect",
        _loses(1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 15, 16, 17, 18, 19, 20),
        Subject(starts.EnqueuedWithoutLook()),
    ),
    Wrong(
        "look-before-start",
        "A start only enqueues sequence 0; the timer service looks first whether it is there.",
        "Context: TimerService.startOccurrence worked around it with a loadState pre-check",
        _loses(1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 15, 16, 17, 18, 19, 20),
        _runtime(starts.EnqueuedBootstrap),
    ),
    Wrong(
        "told-before-durable",
        "Sequence 0 is folded and told before its append has returned.",
        "D1: adopt claims sequence 0 after the append; D2: onEvent has seen nothing",
        _loses(1, 2, 3, 4, 5, 6, 7, 10, 11, 15, 16, 17, 19, 20),
        _runtime(starts.ToldBeforeDurable),
    ),
    Wrong(
        "bootstrap-after-effect",
        "Sequence 0 is written with the first step's record, after the step's effect.",
        "D1: only then does the runner start",
        _loses(1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 15, 16, 17, 18, 19, 20),
        _runtime(starts.BootstrapAfterEffect),
    ),
    Wrong(
        "handle-then-failure",
        "A start that the storage refused returns a handle, whose run then fails.",
        "D2: before this change such a start returned a handle whose run then failed",
        _loses(16, 17, 19),
        _runtime(starts.HandleThenFailure),
    ),
    Wrong(
        "trusting-conflict",
        "A conflict is taken to mean that the execution exists, without reading back.",
        "D2: the conflict is confirmed, not trusted",
        _loses(4, 5, 6, 12, 15, 16, 17),
        _runtime(starts.TrustingConflict),
    ),
    Wrong(
        "conflict-by-error-id",
        "Whose conflict it is is decided by the execution id that the error carries.",
        "D2: nor can the error's own executionId decide it",
        _loses(5, 6, 12, 16, 17),
        _runtime(starts.ConflictByErrorId),
    ),
    Wrong(
        "retry-through-append",
        "The single retry goes through append, where two starts may share a flush again.",
        "D2: retry the append once, alone, as a one-envelope appendBatch (L12 review)",
        _loses(5),
        _runtime(starts.RetryThroughAppend),
    ),
    Wrong(
        "no-retry",
        "A conflict that turns out to be someone else's refuses the start.",
        "D2: absent: retry the append once",
        _loses(4, 5, 6, 12, 15, 16, 17),
        _runtime(starts.NoRetry),
    ),
    Wrong(
        "retries-twice",
        "A retry that meets a conflict is followed by another.",
        "D2: retry the append once; a second conflict is a StorageWriteError",
        _loses(16, 17),
        _runtime(starts.RetriesTwice),
    ),
    Wrong(
        "confirms-once",
        "The conflict of the retry is not confirmed by another read-back.",
        "D2: a second conflict with sequence 0 still absent",
        _loses(5, 11),
        _runtime(starts.ConfirmsOnce),
    ),
    Wrong(
        "runs-unconfirmed",
        "The body is run when the read-back shows nothing.",
        "Residuals: behind a read-lagging replica decorator",
        _loses(4, 5, 6, 10, 11, 12, 15, 16, 17),
        _runtime(starts.RunsUnconfirmed),
    ),
    Wrong(
        "confirms-every-failure",
        "Every failure of the bootstrap is treated as a conflict, and tried again.",
        "D2: any other failure of the bootstrap append refuses the start",
        _loses(19),
        _runtime(starts.ConfirmsEveryFailure),
    ),
    Wrong(
        "isinstance-alone",
        "A conflict is recognised by its class alone.",
        "D2: matched by class and, as a fallback, by name",
        _loses(20),
        _runtime(starts.IsinstanceAlone),
    ),
    Wrong(
        "silent-failure",
        "A refused start is not told to on_storage_error.",
        "D2: and is reported to onStorageError",
        _loses(19),
        _runtime(starts.SilentFailure),
    ),
    Wrong(
        "stale-is-no-conflict",
        "A stale fence at sequence 0 is taken for a failure of the storage.",
        "D2, amended by L12: a duplicate of an execution that has since been fenced",
        _loses(7, 12),
        _runtime(starts.StaleIsNoConflict),
    ),
    Wrong(
        "fenced-out-is-stale",
        "A start that a dead holder fenced out fails as a plain stale write.",
        "Residuals: re-caused as StartFencedOutError (L20)",
        _loses(12),
        _runtime(starts.FencedOutIsStale),
    ),
    Wrong(
        "fencing-start",
        "A start acquires a fence where fires are fenced.",
        "Residuals: a start does not acquire a fence (L12)",
        _loses(7, 8),
        Subject(WithTimers(going_on.FencingStart)),
    ),
    Wrong(
        "lost-race-is-an-error",
        "on_error is told when another node won the race.",
        "D4: it returns without calling onError",
        _loses(2, 3, 7),
        Subject(WithTimers(going_on.LostRaceIsAnError)),
    ),
    Wrong(
        "lease-looked-at",
        "The lease is looked at and not kept.",
        "Residuals: the fix is ownership before the fire",
        _loses(14),
        Subject(WithTimers(going_on.LeaseLookedAt)),
    ),
    Wrong(
        "lease-released-early",
        "The lease is released once the execution is woken, while its body runs.",
        "Residuals: a node that cannot claim the lease skips the fire",
        _loses(14),
        Subject(WithTimers(going_on.LeaseReleasedEarly)),
    ),
    Wrong(
        "fence-after-look",
        "A worker looks whether the execution exists, and fences then.",
        "Residuals: it fences before execute checks whether the execution exists",
        _loses(10, 11),
        Subject(WithWorker(going_on.FenceAfterLook)),
    ),
    Wrong(
        "retry-on-any-failure",
        "A superseded dispatch counts as a failed attempt and is tried again.",
        "Residuals: the two ping-ponged (L20)",
        _loses(11),
        Subject(WithDispatcher(going_on.RetryOnAnyFailure)),
    ),
    Wrong(
        "retry-on-existing",
        "A dispatch that finds the execution started is tried again.",
        "Residuals: ExecutionAlreadyExistsError is a superseded dispatch (L20)",
        _loses(11),
        Subject(WithDispatcher(going_on.RetryOnExisting)),
    ),
    Wrong(
        "supervisor-retries-on-any-failure",
        "The supervising dispatcher tries a superseded dispatch again.",
        "Residuals: neither LocalDispatcher nor SupervisingDispatcher retries it (L20)",
        _loses(11),
        Subject(WithSupervisor(going_on.SupervisorRetriesOnAnyFailure)),
    ),
    Wrong(
        "recovers-from-its-look",
        "A recovery goes on from the state that it saw before its fence.",
        "Residuals: recoverAbandoned re-drives under a fresh fence",
        _loses(9),
        _runtime(going_on.RecoversFromItsLook),
    ),
    Wrong(
        "recovers-unfenced",
        "A recovery takes an execution over without a fence.",
        "Residuals: the first later acquireFence fences out an unfenced starter",
        _loses(12, 13),
        _runtime(going_on.RecoversUnfenced),
    ),
    Wrong(
        "cancels-unfenced",
        "A cancel competes with the run that it cancels, without a fence.",
        "Residuals: the first later acquireFence (a fenced wake, a recovery pass, a cancel)",
        _loses(9),
        _runtime(going_on.CancelsUnfenced),
    ),
    Wrong(
        "runs-steps-again",
        "Recorded steps are forgotten when an execution is driven on.",
        "ADR 0004 and 0051: recorded steps are not run again on resume",
        _loses(9, 10, 11, 12, 13, 14, 15),
        _runtime(going_on.RunsStepsAgain),
    ),
    Wrong(
        "wakes-before-durable",
        "The body goes on before the record of its timer is durable.",
        "Residuals: a token acquired after another node's resume is durable",
        _loses(13),
        _runtime(going_on.WakesBeforeDurable),
    ),
    Wrong(
        "deaf-to-failed-writes",
        "A run goes on after a write that did not land.",
        "D6: a failed durable write aborts the run at the next drain barrier",
        _loses(13, 15),
        _runtime(going_on.DeafToFailedWrites),
    ),
    Wrong(
        "takes-missing-tokens",
        "The store accepts a write without a token once the execution has one.",
        "Residuals: a fencing store MUST refuse a missing token once an execution has one",
        _loses(7, 9),
        Subject(store=stores.takes_missing_tokens),
        part="store",
    ),
    Wrong(
        "takes-stale-tokens",
        "The store accepts a write under a token that was superseded.",
        "Residuals: fencing a fire makes a duplicate fire's writes safe",
        _loses(10, 11, 12, 13),
        Subject(store=stores.takes_stale_tokens),
        part="store",
    ),
    Wrong(
        "swallows-conflicts",
        "The store answers a write to a taken slot with success.",
        "No SPI change: it relies on the uniqueness every append must enforce",
        _loses(1, 2, 3, 4, 5, 6, 7, 8, 13, 15, 17, 18, 20),
        Subject(store=lambda: stores.SwallowsConflicts),
        part="store",
    ),
    Wrong(
        "exclusive-ranges",
        "The store's read_range leaves out its end.",
        "D2: start() reads [0..0] back",
        _loses(1, 2, 3, 4, 5, 6, 7, 11, 15, 20),
        Subject(store=lambda: stores.HidesFirst),
        part="store",
    ),
    Wrong(
        "acknowledges-innocents",
        "The coalescer acknowledges the innocents of a refused flush.",
        "Residuals: all-or-nothing batches reject every caller",
        _loses(4, 6, 15),
        Subject(flushes=stores.AcknowledgesInnocents),
        part="coalescer",
    ),
)

WRONG: Final[Mapping[str, Wrong]] = {wrong.name: wrong for wrong in _ALL}
"""Everything wrong, by its name."""
