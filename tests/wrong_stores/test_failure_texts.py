"""What a person reads of each rule that a wrong store breaks, word for word."""

from __future__ import annotations

import re
from typing import Final

import pytest
from syrupy.assertion import SnapshotAssertion

from loom_conformance.contract.rules import rules
from loom_conformance.lab.settings import Settings
from loom_conformance.lab.verdict import Failure
from loom_conformance.report.failure import failure_text
from loom_conformance.report.outcomes import Outcome
from loom_conformance.report.results import replay_words
from loom_conformance.report.subject import describe

from .harness import SEED, judge
from .registry import Subject, wrong_stores

pytestmark = [
    # Wrong stores leave files and connections open, some of them for that.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SHOWN: Final = {
    "APPEND-1": "caches-its-reads",
    "APPEND-2": "timestamps-in-seconds",
    "APPEND-3": "storages-share-a-table",
    "SEQ-1": "ignores-conflicts",
    "SEQ-2": "equal-is-a-retry",
    "SEQ-3": "slots-share-joined-keys",
    "SEQ-4": "check-then-insert",
    "SEQ-5": "renumbers",
    "ID-1": "every-conflict-is-a-sequence",
    "ID-2": "remembers-recent-ids",
    "ID-3": "ids-under-the-executions-lock",
    "KEY-1": "folds-case",
    "ERR-1": "drivers-error-in-a-batch",
    "ERR-2": "exchanges-the-tokens",
    "ERR-3": "sends-again-without-reading",
    "ERR-4": "drivers-fault-let-through",
    "READ-1": "sorts-as-text",
    "READ-2": "first-is-exclusive",
    "READ-3": "reads-by-prefix",
    "READ-4": "reads-one-page",
    "READ-5": "dirty-reads",
    "READ-6": "hands-out-its-cache",
    "DATA-1": "rounds-numbers",
    "DATA-2": "nan-is-null",
    "DATA-3": "text-column-of-64-kib",
    "LIVE-1": "nested-acquire",
    "LIVE-2": "close-once-only",
    "LIVE-3": "close-answers-as-done",
    "LIVE-4": "half-a-batch-stays",
    "LIVE-5": "set-up-without-a-lock",
    "LIVE-6": "busy-is-not-retried",
    "LIVE-7": "handles-share-a-connection",
    "BATCH-1": "writes-the-first-chunk-only",
    "BATCH-2": "commits-row-by-row",
    "BATCH-3": "batch-becomes-a-dict",
    "BATCH-4": "transaction-an-execution",
    "BATCH-5": "rows-become-visible-one-by-one",
    "BATCH-6": "empty-batch-is-an-error",
    "BATCH-7": "commits-in-chunks",
    "BATCH-8": "walks-a-batch-twice",
    "BATCH-9": "deletes-to-undo",
    "RANGE-1": "range-is-half-open",
    "RANGE-2": "range-of-one-page",
    "FENCE-1": "acquire-is-idempotent",
    "FENCE-2": "token-read-then-written",
    "FENCE-3": "checks-against-its-own-token",
    "FENCE-4": "missing-token-skips-the-check",
    "FENCE-5": "token-is-used-up",
    "FENCE-6": "fence-by-prefix",
    "FENCE-7": "fence-checked-last",
    "FENCE-8": "first-acquire-locks-nothing",
    "FENCE-9": "fence-of-the-first-only",
    "FENCE-10": "fence-of-the-unwritten-is-lost",
    "FENCE-11": "fence-ends-with-the-handle",
    "FENCE-12": "token-through-int",
    "FENCE-13": "token-ahead-passes",
    "FENCE-14": "token-means-nothing-here",
    "COAL-1": "coalescer-full-queue-answers-ok",
    "COAL-2": "coalescer-tells-the-first-only",
    "COAL-3": "coalescer-batch-joins-the-queue",
    "COAL-4": "coalescer-sends-the-refused-again",
    "COAL-5": "coalescer-shares-one-future",
    "COAL-6": "coalescer-close-acknowledges-what-waits",
    "COAL-7": "coalescer-two-flushes-at-once",
    "COAL-8": "coalescer-debounces",
    "SCOPE-1": "scope-fences-the-bare-name",
    "SCOPE-2": "scope-joins-by-a-colon",
    "SCOPE-3": "scope-has-every-method",
    "LEASE-1": "lease-own-claim-is-a-renewal",
    "LEASE-2": "lease-claim-read-then-written",
    "LEASE-3": "lease-never-ends",
    "LEASE-4": "lease-expired-is-renewed",
    "LEASE-5": "lease-renewal-does-nothing",
    "LEASE-6": "lease-anyone-releases",
    "LEASE-7": "lease-ends-with-the-handle",
    "LEASE-8": "lease-names-fold",
    "LEASE-10": "lease-zero-ttl-is-for-ever",
}
"""Each rule with the wrong store whose failure is shown."""


PLACE = re.compile(r"\((\w+\.py):\d+\)")
"""Where an error was raised: its line moves with the file."""


@pytest.mark.parametrize("rule", SHOWN)
def test_failure_text(rule: str, snapshot: SnapshotAssertion) -> None:
    subject = wrong_stores()[SHOWN[rule]]
    verdict = judge(subject, only=[rule])
    failure = verdict.breaks.get(rule) or verdict.advice[rule]
    assert PLACE.sub(r"(\1:N)", text(subject, failure)) == snapshot


def text(subject: Subject, failure: Failure) -> str:
    """The failure as `loom-conformance check` prints it."""
    backend = subject.backend
    where = f"tests.wrong_stores:{backend.__name__}"
    described = describe(
        backend,
        key=where,
        catalogue=[],
        command=("loom-conformance", "check", where),
        by_check=True,
    )
    settings = Settings(subject.deadline, SEED, "quick")
    rule = rules()[failure.rule]
    advice = rule.level == "SHOULD" or failure.advice
    return failure_text(
        failure,
        rule,
        backend=backend.name,
        replay=replay_words(described, settings, rule.id, failure.path or "", failure),
        outcome=Outcome.ADVICE if advice else Outcome.FAILED,
    )
