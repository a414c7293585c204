"""Reports made by hand: one that conforms, one full of every outcome, one that means harm."""

from __future__ import annotations

from typing import Any

from loom_backends.memory import MemoryBackend
from loom_conformance.contract.rules import rules
from loom_conformance.lab.settings import Settings
from loom_conformance.lab.verdict import Declined, Failure, Inconclusive, NotOffered, RuleBroken
from loom_conformance.report.document import Document, document
from loom_conformance.report.outcomes import Expected
from loom_conformance.report.results import results_of
from loom_conformance.report.run import Run, result_event, subject_event
from loom_conformance.report.subject import describe

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\ud800{{7*7}}|`"

TRACE: dict[str, Any] = {
    "nodes": ["A", "B"],
    "rows": [
        {
            "step": 1,
            "node": 0,
            "text": "read_range('s@7', 0, 0) → []",
            "remark": "",
            "wrong": False,
        },
        {
            "step": 2,
            "node": 1,
            "text": "read_range('s@7', 0, 0) → []",
            "remark": "",
            "wrong": False,
        },
        {"step": 3, "node": 1, "text": "append('s@7', 0) → ok", "remark": "", "wrong": False},
        {"step": None, "node": 1, "text": "told EXECUTION_STARTED", "remark": "", "wrong": False},
        {
            "step": 4,
            "node": 0,
            "text": "append('s@7', 0) → ok",
            "remark": "the slot was taken at step 3",
            "wrong": True,
        },
    ],
}

CALLS: dict[str, Any] = {
    "kind": "calls",
    "bars": [
        {
            "process": "writer-1",
            "handle": "h1",
            "operation": "append('s@7', 0)",
            "outcome": "ok",
            "certain": True,
            "stuck": False,
            "begin": 0.0,
            "end": 0.4,
            "invoked_ns": 0,
            "completed_ns": 10,
        },
        {
            "process": "writer-2",
            "handle": "h2",
            "operation": "append('s@7', 0)",
            "outcome": "unknown",
            "certain": False,
            "stuck": True,
            "begin": 0.2,
            "end": 1.0,
            "invoked_ns": 5,
            "completed_ns": None,
        },
    ],
}


def report(name: str = "memory", **errors: BaseException | None) -> Document:
    """A whole run in which every rule passed but for these; the keys are ids with an underscore."""

    class Sample(MemoryBackend):
        known_failing = {"ID-1": "issue 12"} if "ID_1" in errors else {}

    Sample.name = name
    run = Run(
        Settings(seed=7),
        python="CPython 3.11.7",
        platform="Linux",
        started_at="2026-01-02T03:04:05+00:00",
        duration_s=12.5,
    )
    subject = describe(
        Sample,
        key="test_backend.py::TestBackend",
        catalogue=[Expected(rule, "test_it") for rule in rules()],
        command=("loom-conformance", "check", f"{name}:Backend"),
        by_check=True,
        spec=f"{name}:Backend",
    )
    run.take(subject_event(subject))
    for rule in rules():
        for result in results_of(
            subject,
            run.settings,
            rule=rule,
            test="test_it",
            path="",
            error=errors.get(rule.replace("-", "_")),
            duration_s=0.25,
        ):
            run.take(result_event(subject.key, result))
    return document(run, subject.key)


def broken(rule: str, **more: Any) -> RuleBroken:
    """A rule that a store broke."""
    given: dict[str, Any] = {
        "expected": "DuplicateSequenceError for 's@7' at 0",
        "got": "acknowledged: A.append('s@7' at 0)",
        "steps": ["A.append('s@7' at 0) → ok", "B.append('s@7' at 0) → ok"],
        "log": ["read_from('s@7') → ['s@7' at 0]"],
        **more,
    }
    return RuleBroken(Failure(rule, **given))


def failing(name: str = "wrong") -> Document:
    """Something of every outcome."""
    return report(
        name,
        SEQ_1=broken("SEQ-1", path="batch-first"),
        SEQ_4=broken("SEQ-4", picture=TRACE, trace="node A   node B"),
        BATCH_9=broken("BATCH-9", picture=CALLS),
        ID_1=broken("ID-1"),
        FENCE_13=broken("FENCE-13"),
        LIVE_3=Inconclusive("no call was in flight"),
        READ_3=OSError("disk full"),
        RANGE_1=NotOffered("the store has no range"),
        LEASE_1=Declined("one node only"),
    )


def hostile() -> Document:
    """A backend whose every word is an attack."""
    return report(
        f"evil {HOSTILE}",
        SEQ_1=broken(
            "SEQ-1",
            expected=HOSTILE,
            got=HOSTILE,
            steps=[HOSTILE, f"A.append({HOSTILE})", f"B.append({HOSTILE})"],
            log=[HOSTILE],
            path=HOSTILE,
            trace=HOSTILE,
        ),
        SEQ_4=broken(
            "SEQ-4",
            picture={
                "nodes": [HOSTILE, "B"],
                "rows": [{"step": 1, "node": 0, "text": HOSTILE, "remark": HOSTILE, "wrong": True}],
            },
        ),
        BATCH_9=broken(
            "BATCH-9",
            picture={
                "kind": "calls",
                "bars": [
                    {
                        **CALLS["bars"][0],
                        "process": HOSTILE,
                        "operation": HOSTILE,
                        "outcome": HOSTILE,
                    }
                ],
            },
        ),
        LIVE_3=Inconclusive(HOSTILE),
        READ_3=OSError(HOSTILE),
        RANGE_1=NotOffered(HOSTILE),
    )
