"""Small projects that use the kit, as text: a backend, and a class with one test an outcome."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import jsonschema

from loom_conformance.report.document import schema

# Loaded once, so that not every project's run in this process loads them again.
for _module in ("loom_backends.memory", "loom_conformance.suites"):
    importlib.import_module(_module)

OUTCOMES = """
from loom_backends.memory import MemoryBackend
from loom_conformance.lab.verdict import Declined, Inconclusive, NotOffered
from loom_conformance.suites.case import on_every_write_path, rule


class Mine(MemoryBackend):
    name = "mine"
    declined = {"leases": "one node only"}
    known_failing = {"ID-1": "issue 12: ids are compared with the last 100 only"}


class TestMine:
    backend = Mine

    @rule("APPEND-1")
    async def test_it_passes(self, stage):
        await stage.given_log(1)

    @rule("SEQ-1")
    @on_every_write_path
    async def test_it_fails_on_one_path(self, stage, path):
        log = await stage.given_log(1)
        stage.check(path.name != "batch-first", "a refusal", "acknowledged: \\x1b[31m\\ud800")

    @rule("ID-1")
    async def test_it_is_known_to_fail(self, stage):
        stage.broken("a refusal", "nothing of the kind")

    @rule("FENCE-13")
    async def test_it_is_advice(self, stage):
        stage.broken("a refusal", "the token was taken")

    @rule("LIVE-3")
    async def test_it_is_inconclusive(self, stage):
        raise Inconclusive("no call was in flight")

    @rule("RANGE-1")
    async def test_it_is_not_offered(self, stage):
        raise NotOffered("the store has no range")

    @rule("LEASE-1")
    async def test_it_is_declined(self, stage):
        raise Declined("one node only")

    @rule("READ-3")
    async def test_it_breaks(self, stage):
        raise OSError("disk full")
"""

PASSING = """
from loom_backends.memory import MemoryBackend
from loom_conformance.suites.case import on_every_write_path, rule


class Mine(MemoryBackend):
    name = "mine"


class Kit:
    backend = Mine

    @rule("APPEND-1")
    async def test_what_is_acknowledged_is_there(self, stage):
        await stage.given_log(1)

    @rule("SEQ-1")
    @on_every_write_path
    async def test_a_taken_slot_is_refused(self, stage, path):
        await stage.given_log(1)

    @rule("RANGE-1")
    async def test_both_ends_are_inclusive(self, stage):
        await stage.given_log(1)


class TestMine(Kit):
    pass
"""

WRONG_BUT_PASSING = PASSING.replace(
    "async def test_both_ends_are_inclusive(self, stage):\n        await stage.given_log(1)",
    "async def test_both_ends_are_inclusive(self, stage):\n        stage.broken('two', 'one')",
)


def report_of(path: Path) -> dict[str, Any]:
    """A JSON report, held against its schema."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema(), format_checker=jsonschema.FormatChecker())
    validator.validate(found)
    return found


def outcomes_of(report: dict[str, Any]) -> dict[str, str]:
    """Each rule's outcome."""
    return {rule["id"]: rule["outcome"] for rule in report["rules"]}


def rule_of(report: dict[str, Any], rule_id: str) -> dict[str, Any]:
    """One rule's entry."""
    found: dict[str, Any] = next(rule for rule in report["rules"] if rule["id"] == rule_id)
    return found
