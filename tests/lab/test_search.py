"""The search for a legal order, against histories of others and against all permutations."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_conformance.lab.checker.call import Call
from loom_conformance.lab.checker.minimal import smallest_illegal
from loom_conformance.lab.checker.register import (
    Access,
    Answered,
    JepsenFormatError,
    Register,
    RegisterCall,
    RegisterModel,
    read_jepsen,
)
from loom_conformance.lab.checker.search import Answer, Budget, search

ETCD = Path(__file__).parents[1] / "data" / "etcd"
VERDICTS = [line.split() for line in (ETCD / "verdicts.txt").read_text().splitlines()]


@pytest.mark.parametrize(("name", "linearizable"), VERDICTS)
def test_the_etcd_histories_are_judged_as_others_judged_them(name: str, linearizable: str) -> None:
    found = search(RegisterModel(), read_jepsen(ETCD / name))
    assert found.answer is (Answer.LEGAL if linearizable == "true" else Answer.ILLEGAL)


def test_the_etcd_histories_hold_both_verdicts() -> None:
    verdicts = [verdict for _, verdict in VERDICTS]
    assert len(verdicts) == len({name for name, _ in VERDICTS}) > 50
    assert verdicts.count("true") > 5
    assert verdicts.count("false") > 30


# --- Against all permutations -----------------------------------------------------------------


def legal_by_brute_force(calls: list[RegisterCall]) -> bool:
    """Try every subset of the uncertain calls and every order."""
    model = RegisterModel()
    certain = [call for call in calls if call.certain]
    uncertain = [call for call in calls if not call.certain]
    for count in range(len(uncertain) + 1):
        for chosen in itertools.combinations(uncertain, count):
            for order in itertools.permutations([*certain, *chosen]):
                if _respects_time(order) and _is_legal(model, order):
                    return True
    return False


def _respects_time(order: tuple[RegisterCall, ...]) -> bool:
    for place, call in enumerate(order):
        for later in order[place + 1 :]:
            if later.deadline is not None and later.deadline < call.invoked:
                return False
    return True


def _is_legal(model: RegisterModel, order: tuple[RegisterCall, ...]) -> bool:
    state: Register | None = model.initial
    for call in order:
        assert state is not None
        state = model.step(state, call.operation, call.outcome)
        if state is None:
            return False
    return True


VALUES = st.sampled_from([None, 1, 2])
ACCESSES = st.one_of(
    st.tuples(st.just(Access("read")), st.builds(Answered, st.just("ok"), VALUES)),
    st.tuples(
        st.builds(Access, st.just("write"), st.sampled_from([1, 2])), st.just(Answered("ok"))
    ),
    st.tuples(
        st.builds(Access, st.just("cas"), st.sampled_from([1, 2]), VALUES),
        st.builds(Answered, st.sampled_from(["ok", "fail"])),
    ),
)


@st.composite
def histories(draw: st.DrawFn) -> list[RegisterCall]:
    accesses = draw(st.lists(ACCESSES, min_size=1, max_size=6))
    calls = []
    for number, (operation, outcome) in enumerate(accesses):
        begin = draw(st.integers(0, 12))
        certain = draw(st.integers(0, 4)) > 0
        if not certain:
            outcome = Answered("info")
        end = begin + draw(st.integers(1, 8))
        calls.append(Call("p", number, operation, outcome, begin * 10, end * 10 + 5, certain))
    return calls


@settings(max_examples=600, deadline=None)
@given(histories())
def test_the_search_agrees_with_trying_every_order(calls: list[RegisterCall]) -> None:
    found = search(RegisterModel(), calls)
    assert (found.answer is Answer.LEGAL) == legal_by_brute_force(calls)
    if found.answer is Answer.LEGAL:
        order = tuple(found.order)
        assert {call for call in calls if call.certain} <= set(order)
        assert _respects_time(order)
        assert _is_legal(RegisterModel(), order)
    else:
        assert found.stuck


@settings(max_examples=200, deadline=None)
@given(histories().filter(lambda calls: not legal_by_brute_force(calls)))
def test_the_smallest_illegal_part_is_illegal_and_cannot_lose_a_call(
    calls: list[RegisterCall],
) -> None:
    small = smallest_illegal(RegisterModel(), calls)
    certain = [call for call in small if call.certain]
    assert certain
    needed = {call.number for call in certain}
    assert {call.number for call in small} <= {call.number for call in calls}
    model = RegisterModel()
    open_calls = [
        replace(call, certain=False)
        for call in calls
        if call.number not in needed and not model.is_pure(call.operation, call.outcome)
    ]
    assert not legal_by_brute_force([*certain, *open_calls])
    for read in certain:
        if model.is_pure(read.operation, read.outcome):
            rest = [call for call in certain if call is not read]
            assert not rest or legal_by_brute_force([*rest, *open_calls])


# --- Giving up --------------------------------------------------------------------------------


def hard_history(writers: int) -> list[RegisterCall]:
    """Simultaneous writes of different values, and a read of a value that nobody wrote."""
    calls = [Call(f"w{n}", n, Access("write", n), Answered("ok"), 0, 100) for n in range(writers)]
    read = Call("r", 0, Access("read"), Answered("ok", 99), 200, 300)
    return [*calls, read]


def test_a_search_that_gives_up_says_unknown() -> None:
    for budget in (Budget(steps=2000), Budget(memory=500), Budget(seconds=0.0)):
        found = search(RegisterModel(), hard_history(14), budget)
        assert found.answer is Answer.UNKNOWN
    assert search(RegisterModel(), hard_history(8)).answer is Answer.ILLEGAL


def test_a_budget_is_shared() -> None:
    budget = Budget(steps=3000)
    assert search(RegisterModel(), hard_history(6), budget).answer is Answer.ILLEGAL
    spent = budget.spent
    assert spent > 10
    search(RegisterModel(), hard_history(6), budget)
    assert budget.spent == 2 * spent


def test_a_budget_made_before_a_long_load_is_whole_when_the_search_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(seconds=30.0)
    now[0] += 3600.0
    assert all(budget.take(0) for _ in range(4096))
    now[0] += 31.0
    assert not all(budget.take(0) for _ in range(1024))


def test_memory_keeps_the_search_small() -> None:
    found = search(RegisterModel(), hard_history(12))
    assert found.answer is Answer.ILLEGAL
    assert found.states < 13 * 2**12, "not the 12! orders"


# --- Jepsen's format --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("INFO  jepsen.util - 0 :ok :read 1", "made no such call"),
        ("INFO  jepsen.util - 0 :invoke :pop 1", "no call of a register"),
        ("INFO  jepsen.util - 0 :invoke :write x", "neither a number nor nil"),
        (
            "INFO  jepsen.util - 0 :invoke :read nil\nINFO  jepsen.util - 0 :invoke :read nil",
            "still in a call",
        ),
    ],
)
def test_a_broken_log_is_refused_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "broken.log"
    path.write_text(text)
    with pytest.raises(JepsenFormatError, match=reason) as caught:
        read_jepsen(path)
    assert "broken.log:" in str(caught.value)


def test_a_call_without_an_answer_may_happen_or_not(tmp_path: Path) -> None:
    path = tmp_path / "open.log"
    lines = [":invoke :write 1", ":invoke :read nil", ":ok :read {}", ":invoke :read nil"]
    for seen in ("nil", "1"):
        text = "\n".join(
            f"INFO  jepsen.util - {process}\t{line.format(seen)}"
            for process, line in zip((0, 1, 1, 2), lines, strict=True)
        )
        path.write_text(text)
        calls = read_jepsen(path)
        assert [call.certain for call in calls].count(False) == 2
        assert search(RegisterModel(), calls).answer is Answer.LEGAL
