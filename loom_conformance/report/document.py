"""The report as one JSON document, described by the schema beside this module."""

from __future__ import annotations

import json
from functools import cache
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from ..contract.rules import PROFILES, digest
from .certificate import certify
from .diagnosis import diagnose, where_it_fails
from .evidence import evidence
from .outcomes import Outcome, RuleResult, TestResult
from .run import Run

Document: TypeAlias = dict[str, Any]

FORMAT: Final = 1
"""Raised when a reader of older documents would misread a newer one."""


class DocumentError(ValueError):
    """A file is no report of the kit."""


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema that every document follows."""
    text = files(__package__).joinpath("schema.json").read_text("utf-8")
    return cast("dict[str, Any]", json.loads(text))


def document(run: Run, key: str) -> Document:
    """The report on one backend.

    Args:
        run: the run that has ended.
        key: which of its subjects.
    """
    subject = run.subjects[key].subject
    results = run.rule_results(key)
    certificate = certify(
        subject.name, results, subject.declarations, run.choice.told(), run.stopped
    )
    return {
        "format": FORMAT,
        "kit_version": metadata.version("loom-conformance"),
        "rule_set_digest": digest(),
        "backend": {"name": subject.name, "spec": subject.spec, "build": subject.build},
        "declarations": dict(subject.declarations),
        "python": run.python,
        "platform": run.platform,
        "seed": run.settings.seed,
        "depth": run.settings.depth,
        "deadline_s": run.settings.deadline,
        "started_at": run.started_at,
        "duration_s": round(run.duration_s, 3),
        "selection": {
            "profiles": list(run.choice.profiles),
            "rules": list(run.choice.rules),
            "paths": list(run.choice.paths),
        },
        "certificate": {
            "verdict": certificate.verdict.value,
            "proven": list(certificate.proven),
            "not_proven": certificate.unproven,
            "limits": list(certificate.limits),
            "evidence": dict(certificate.evidence),
            "line": certificate.line,
        },
        "unclean": list(run.unclean),
        "diagnosis": [
            suspicion.to_json("" if place else where_it_fails(results))
            for place, suspicion in enumerate(diagnose(results))
        ],
        "profiles": [_profile(profile, results) for profile in PROFILES],
        "rules": [_rule(result) for result in results],
    }


def _profile(profile: str, results: list[RuleResult]) -> dict[str, Any]:
    own = [one for one in results if one.rule.profile == profile]
    outcomes = [one.outcome for one in own]
    return {
        "profile": profile,
        "outcomes": {kind.value: outcomes.count(kind) for kind in Outcome if kind in outcomes},
        "evidence": evidence(own),
    }


def _rule(result: RuleResult) -> dict[str, Any]:
    return {
        "id": result.rule.id,
        "profile": result.rule.profile,
        "level": result.rule.level,
        "promise": result.rule.promise,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "paths": [
            {"path": path, "outcome": outcome.value} for path, outcome in result.paths.items()
        ],
        "duration_s": round(result.duration_s, 3),
        "tests": [_test(test) for test in result.tests]
        + [
            {
                "test": entry.test,
                "path": entry.path,
                "outcome": Outcome.NOT_RUN.value,
                "reason": "",
                "duration_s": 0.0,
            }
            for entry in result.missing
        ],
        "failures": [_failure(test) for test in result.tests if test.text],
    }


def _test(test: TestResult) -> dict[str, Any]:
    return {
        "test": test.test,
        "path": test.path,
        "outcome": test.outcome.value,
        "reason": test.reason,
        "duration_s": round(test.duration_s, 3),
    }


def _failure(test: TestResult) -> dict[str, Any]:
    data = test.failure or {}
    return {
        "test": test.test,
        "path": test.path,
        "outcome": test.outcome.value,
        "text": test.text,
        "expected": data.get("expected", ""),
        "got": data.get("got", test.reason),
        "steps": list(data.get("steps", ())),
        "log": list(data.get("log", ())),
        "trace": data.get("trace"),
        "picture": data.get("picture"),
        "replay": test.replay,
    }


def read(path: Path) -> Document:
    """Read a JSON report.

    Raises:
        DocumentError: there is no such file, or it is no report of a format that this kit reads.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DocumentError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict) or "rule_set_digest" not in found:
        raise DocumentError(f"{path} is no report of loom-conformance")
    if found.get("format") != FORMAT:
        raise DocumentError(
            f"{path} has format {found.get('format')!r}; this version reads format {FORMAT}"
        )
    rules = found.get("rules")
    if not (isinstance(rules, list) and all(isinstance(one, dict) for one in rules)):
        raise DocumentError(
            f"{path} is no report: a certificate, or a part of one, says too little here. Give the "
            "report.json of that run"
        )
    return found
