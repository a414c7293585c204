"""What changed between two reports: what got worse, what got better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .document import Document
from .outcomes import Outcome

BEST_FIRST: Final = (
    Outcome.PASSED,
    Outcome.ADVICE,
    Outcome.NOT_OFFERED,
    Outcome.DECLINED,
    Outcome.KNOWN_FAILING,
    Outcome.NOT_RUN,
    Outcome.OVERRIDDEN,
    Outcome.INCONCLUSIVE,
    Outcome.ERROR,
    Outcome.FAILED,
)
"""From what a user likes to see most: a promise that is withdrawn is a change for the worse."""


@dataclass(frozen=True, slots=True)
class Change:
    """One rule, or one of its write paths, whose outcome changed.

    Attributes:
        rule: the rule's id.
        path: the write path, or `""` for the rule as a whole.
        before, after: the outcomes; `None` where the rule set did not have the rule.
        reason: the reason of the later outcome, or of the earlier one where it is good now.
    """

    rule: str
    path: str
    before: str | None
    after: str | None
    reason: str

    @property
    def worse(self) -> bool:
        """Whether it is a change for the worse."""
        if self.after == Outcome.NOT_RUN:
            return self.before in (Outcome.PASSED, Outcome.ADVICE)
        return self.after is not None and rank(self.after) > rank(self.before)

    @property
    def better(self) -> bool:
        """Whether it is a change for the better; to leave a rule out betters nothing."""
        if self.after == Outcome.NOT_RUN:
            return False
        return self.before is not None and rank(self.before) > rank(self.after)


def rank(outcome: str | None) -> int:
    """How bad an outcome is; a rule that was not there counts as one that passed."""
    return 0 if outcome is None else BEST_FIRST.index(Outcome(outcome))


def changes(old: Document, new: Document) -> list[Change]:
    """Every rule whose outcome changed, and every write path that changed within one that did not.

    Rules that only one of the reports knows are changes too.
    """
    before, after = _rules(old), _rules(new)
    found = []
    for rule_id in dict.fromkeys([*before, *after]):
        was, now = before.get(rule_id), after.get(rule_id)
        if was is None or now is None or was["outcome"] != now["outcome"]:
            reason = next((one["reason"] for one in (now, was) if one and one["reason"]), "")
            found.append(
                Change(
                    rule_id,
                    "",
                    was["outcome"] if was else None,
                    now["outcome"] if now else None,
                    reason,
                )
            )
            continue
        places, later = _paths(was), _paths(now)
        for path in dict.fromkeys([*places, *later]):
            if path in places and path in later and places[path] != later[path]:
                found.append(Change(rule_id, path, places[path], later[path], now["reason"]))
    return found


def _rules(report: Document) -> Mapping[str, Mapping[str, Any]]:
    return {rule["id"]: rule for rule in report["rules"]}


def _paths(rule: Mapping[str, Any]) -> dict[str, str]:
    return {one["path"]: one["outcome"] for one in rule["paths"]}
