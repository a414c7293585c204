"""The suites against the contract's data: nothing is untested, and nothing tests nothing."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import pytest

import loom_conformance.suites
from loom_conformance.contract.rules import rules
from loom_conformance.suites import catalogue
from loom_conformance.suites.case import Case, is_test_name
from loom_conformance.suites.conformance import Conformance

ABOUT_WRITING = {
    *("APPEND-1", "APPEND-2", "APPEND-3", "SEQ-1", "SEQ-2", "SEQ-3", "SEQ-4", "SEQ-5"),
    *("ID-1", "ID-2", "ID-3", "KEY-1", "ERR-1", "ERR-2", "ERR-3", "ERR-4", "READ-3", "READ-5"),
    *("READ-6", "DATA-1", "DATA-2", "DATA-3", "LIVE-1", "LIVE-3", "LIVE-4", "LIVE-6", "LIVE-7"),
    *("FENCE-3", "FENCE-4", "FENCE-5", "FENCE-6", "FENCE-7", "FENCE-8", "FENCE-10", "FENCE-11"),
    *("FENCE-12", "FENCE-13", "FENCE-14"),
}


@pytest.mark.parametrize("id", list(rules()))
def test_every_rule_has_a_test(id: str) -> None:
    assert [case for case in catalogue() if case.rule.id == id]


@pytest.mark.parametrize("id", sorted(ABOUT_WRITING))
def test_a_rule_about_writing_is_tried_on_every_write_path(id: str) -> None:
    assert any(len(case.paths) == 10 for case in catalogue() if case.rule.id == id)


@pytest.mark.parametrize("case", catalogue(), ids=lambda case: case.name)
def test_a_test_is_named_as_a_sentence(case: Case) -> None:
    assert is_test_name(case.name)


def test_no_two_tests_have_one_name() -> None:
    names = [case.name for case in catalogue()]
    assert sorted(names) == sorted(set(names))


def test_every_test_of_a_suite_names_a_rule_and_is_composed() -> None:
    known = {case.name for case in catalogue()}
    suites = 0
    for module in pkgutil.walk_packages(
        loom_conformance.suites.__path__, "loom_conformance.suites."
    ):
        if module.name.endswith("test_backend"):
            continue
        for name, value in vars(import_module(module.name)).items():
            if inspect.isclass(value) and name.endswith("Suite"):
                suites += 1
                assert issubclass(Conformance, value)
                assert {each for each in vars(value) if each.startswith("test")} <= known
    assert suites
