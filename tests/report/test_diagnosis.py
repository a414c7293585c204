"""From failing rules to a likely fault, by claims made for the purpose."""

from __future__ import annotations

from collections.abc import Iterable

from report_samples import broken, report

from loom_conformance.contract.rules import rules
from loom_conformance.report.claims import Claim, claims
from loom_conformance.report.diagnosis import (
    Fit,
    Suspicion,
    diagnose,
    diagnosis_title,
    families,
    suspicion_text,
    where_it_fails,
)
from loom_conformance.report.html import render
from loom_conformance.report.left_out import left_out, looks
from loom_conformance.report.markdown import markdown
from loom_conformance.report.outcomes import Outcome, RuleResult
from loom_conformance.report.terminal import summary


def claim(name: str, family: str, breaks: Iterable[str], **more: frozenset[str]) -> Claim:
    return Claim(name, family, f"{name} is wrong.", "Mend it.", "here", frozenset(breaks), **more)


KNOWN = {
    one.name: one
    for one in (
        claim("skips", "lost-refusal", ["SEQ-1", "SEQ-2", "SEQ-4"]),
        claim("upserts", "lost-refusal", ["SEQ-1", "SEQ-2", "SEQ-4", "ID-1"]),
        claim("races", "check-then-insert", ["SEQ-4", "ID-3"]),
        claim("fences-once", "fence-read-once", ["FENCE-3", "FENCE-9"]),
        claim(
            "races-and-hangs", "slow-lock", ["SEQ-4", "ID-3"], inconclusive=frozenset({"LIVE-3"})
        ),
    )
}


def results(failed: Iterable[str] = (), **others: Outcome) -> list[RuleResult]:
    given = {name.replace("_", "-"): outcome for name, outcome in others.items()}
    found = []
    for rule in rules().values():
        outcome = Outcome.FAILED if rule.id in set(failed) else given.get(rule.id, Outcome.PASSED)
        found.append(RuleResult(rule, outcome, "", {}))
    return found


def named(found: Iterable[Suspicion]) -> list[tuple[str, Fit]]:
    return [(one.claim.name, one.fit) for one in found]


def test_where_nothing_is_broken_there_is_no_fault() -> None:
    assert diagnose(results(), KNOWN) == []
    assert diagnose(results(SEQ_4=Outcome.INCONCLUSIVE), KNOWN) == []


def test_an_exact_fit_stands_first() -> None:
    found = diagnose(results(["SEQ-1", "SEQ-2", "SEQ-4"]), KNOWN)
    assert named(found)[0] == ("skips", Fit.EXACT)
    assert found[0].likeness == 1.0


def test_a_family_is_named_once() -> None:
    families = [one.claim.family for one in diagnose(results(["SEQ-1", "SEQ-2", "SEQ-4"]), KNOWN)]
    assert len(families) == len(set(families))


def test_of_two_exact_fits_the_small_print_decides() -> None:
    assert named(diagnose(results(["SEQ-4", "ID-3"]), KNOWN))[0] == ("races", Fit.EXACT)
    found = diagnose(results(["SEQ-4", "ID-3"], LIVE_3=Outcome.INCONCLUSIVE), KNOWN)
    assert named(found)[0] == ("races-and-hangs", Fit.EXACT)


def test_a_fault_among_others_is_a_part() -> None:
    found = diagnose(results(["FENCE-3", "FENCE-9", "RANGE-1"]), KNOWN)
    assert named(found) == [("fences-once", Fit.PART)]


def test_a_fault_that_nearly_fits_is_near() -> None:
    assert named(diagnose(results(["SEQ-1", "SEQ-4"]), KNOWN))[0] == ("skips", Fit.NEAR)


def test_what_fits_badly_is_not_mentioned() -> None:
    assert diagnose(results(["RANGE-1", "RANGE-2", "DATA-1"]), KNOWN) == []


def test_rules_that_were_not_judged_say_nothing() -> None:
    found = diagnose(results(["FENCE-3"], FENCE_9=Outcome.NOT_OFFERED), KNOWN)
    assert named(found) == [("fences-once", Fit.EXACT)]
    found = diagnose(results(["FENCE-3"]), KNOWN)
    assert named(found) == [("fences-once", Fit.NEAR)]


def test_what_was_not_asked_for_leaves_it_open() -> None:
    found = diagnose(results(["FENCE-3"], FENCE_9=Outcome.NOT_RUN), KNOWN)
    assert named(found) == [("fences-once", Fit.NEAR)]
    whole = diagnose(results(["FENCE-3"], FENCE_9=Outcome.NOT_OFFERED), KNOWN)
    assert found[0].likeness < whole[0].likeness


def test_a_race_that_is_lost_over_a_broken_rule_changes_nothing() -> None:
    found = diagnose(results(["FENCE-3", "FENCE-9", "RACE-2"]), KNOWN)
    assert named(found) == [("fences-once", Fit.EXACT)]


def test_every_form_of_a_report_tells_it() -> None:
    made = report(SEQ_1=broken("SEQ-1"))
    made["diagnosis"] = [
        Suspicion(KNOWN["skips"], Fit.EXACT, 1.0).to_json(),
        Suspicion(KNOWN["races"], Fit.NEAR, 0.5).to_json(),
    ]
    made["diagnosis"][0]["kind"] = "Refusals are lost."
    sentence = suspicion_text(made["diagnosis"][0])
    assert sentence == (
        "Refusals are lost. Just what this fault looks like: skips is wrong. Mend it."
    )
    assert sentence in " ".join(" ".join(summary(made)).split())
    assert sentence in render([made])
    assert f"Likely fault, lost-refusal: {sentence}" in markdown([made])


def on_paths(rule: str, *failing: str, held: Iterable[str] = ()) -> RuleResult:
    paths = dict.fromkeys(failing, Outcome.FAILED) | dict.fromkeys(held, Outcome.PASSED)
    return RuleResult(rules()[rule], Outcome.FAILED if failing else Outcome.PASSED, "", paths)


def test_it_says_where_rules_fail_that_hold_elsewhere() -> None:
    batches = ["batch-of-one", "batch-first", "batch-middle", "batch-last"]
    alone = ["append", "coalesced-append"]
    fence_3 = on_paths("FENCE-3", *batches, held=alone)
    fence_9 = RuleResult(rules()["FENCE-9"], Outcome.FAILED, "", {})
    assert where_it_fails([fence_3, fence_9]) == "FENCE-3 fails on batches only."
    two = [fence_3, on_paths("FENCE-4", *batches, held=alone)]
    assert where_it_fails(two) == "FENCE-3 and FENCE-4 fail on batches only."
    several = on_paths("SEQ-1", *batches[1:], held=["append", "batch-of-one"])
    assert where_it_fails([several]) == "SEQ-1 fails in batches of several only."
    coalesced = on_paths("SEQ-1", "coalesced-append", held=["append", "batch-of-one"])
    assert where_it_fails([coalesced]) == "SEQ-1 fails behind the coalescing decorator only."
    assert where_it_fails([on_paths("SEQ-1", "append", held=batches)]) == (
        "SEQ-1 fails on single appends only."
    )


def test_it_says_nothing_where_no_path_holds_or_rules_differ() -> None:
    assert where_it_fails(results(["SEQ-1"])) == ""
    assert where_it_fails([on_paths("SEQ-1", "batch-first", "batch-last")]) == ""
    both = [
        on_paths("SEQ-1", "batch-first", held=["append"]),
        on_paths("SEQ-2", "append", held=["batch-first"]),
    ]
    assert where_it_fails(both) == ""


# --- how well it does -----------------------------------------------------------------------------


def test_every_known_fault_has_a_family_that_is_described() -> None:
    assert {one.family for one in claims().values()} <= families().keys()
    assert all(text.endswith(".") for text in families().values())


def test_a_fault_that_is_left_out_is_found_by_its_family() -> None:
    found = left_out()
    assert found.all == len(claims())
    assert found.first + len(found.missed) == found.all
    assert found.first >= 0.8 * found.siblings, str(found)
    assert found.first >= 0.8 * found.all, str(found)


def test_what_cannot_be_found_is_counted_apart() -> None:
    found = left_out(KNOWN)
    assert (found.all, found.siblings) == (5, 2)
    assert found.first == 2
    assert set(found.missed) == {"races", "fences-once", "races-and-hangs"}
    assert "2 of 5 known faults" in str(found)
    assert "100% of the 2 whose family has another fault, 40% of all" in str(found)


def test_a_known_fault_is_found_by_itself() -> None:
    known = claims()
    found = [
        name
        for name, fault in known.items()
        if [one.claim.family for one in diagnose(looks(fault), at_most=1)] == [fault.family]
    ]
    assert len(found) >= 0.9 * len(known)


def test_the_nearest_of_what_is_far_is_not_called_likely() -> None:
    far, near = (Suspicion(KNOWN["skips"], fit, 0.1).to_json() for fit in (Fit.FAR, Fit.NEAR))
    assert diagnosis_title([far]) == "nearest known fault"
    assert diagnosis_title([near]) == "likely fault"


def test_of_faults_that_are_all_far_only_the_nearest_is_named() -> None:
    found = diagnose(results(["KEY-1", "RANGE-2", "SCOPE-2", "ERR-4", "LIVE-5"]))
    assert [one.fit for one in found] == [Fit.FAR]
