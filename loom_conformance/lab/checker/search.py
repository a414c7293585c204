"""Is there a legal order? The search of Wing and Gong, with Lowe's memory.

A history is linearizable when every call can be given one instant between its invocation and its
completion so that the calls, in the order of these instants, are legal for the model. The search
tries orders depth first and remembers each configuration (which calls have been placed, and the
state they led to) that it has met, so that none is tried twice.

Calls of uncertain outcome may take any instant after their invocation or none; the search places
one only where that changes the state. A pure call (a read, a refusal: it leaves every state as it
is) is placed as soon as it is allowed: moving it there from later in any legal order leaves that
order legal, so nothing else needs to be tried in its place.

Sources: J. M. Wing and C. Gong, "Testing and verifying concurrent objects", JPDC 17 (1993);
G. Lowe, "Testing for linearizability", Concurrency and Computation 29(4) (2017);
A. Horn and D. Kroening, "Faster linearizability checking via P-compositionality" (2015).
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

from .call import Call

O = TypeVar("O")  # noqa: E741
R = TypeVar("R")
S = TypeVar("S", bound=Hashable)


class Model(Protocol[O, R, S]):
    """What an object may do, one call at a time."""

    @property
    def initial(self) -> S:
        """The state before the first call."""

    def step(self, state: S, operation: O, outcome: R) -> S | None:
        """The state after a call, or `None` where the outcome is not allowed.

        For an uncertain outcome: the state after the call took effect, or `None` where it cannot.
        """

    def is_pure(self, operation: O, outcome: R) -> bool:
        """Whether a call with this outcome leaves every state as it is (a read, a refusal)."""

    def keys(self, operation: O) -> Iterable[Hashable]:
        """The parts of the state that an operation touches; without a common key two commute."""

    def precedence(self, calls: Sequence[Call[O, R]]) -> Iterable[tuple[Call[O, R], Call[O, R]]]:
        """Pairs of certain calls of which the first comes before the second in every legal order.

        They spare the search orders that cannot end well; none at all is always right.
        """

    def partition(self, calls: Sequence[Call[O, R]]) -> Iterable[list[Call[O, R]]]:
        """Parts that can be judged apart (P-compositionality); one part is always right."""


class Answer(Enum):
    """What a search found."""

    LEGAL = "legal"
    ILLEGAL = "illegal"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Budget:
    """How much a search may spend, over all the parts that it is handed.

    Attributes:
        steps: how many times the model may be asked.
        seconds: the time that may pass after the first step.
        memory: how many configurations may be remembered.
    """

    steps: int = 20_000_000
    seconds: float = 60.0
    memory: int = 2_000_000
    spent: int = 0
    _started: float = field(default=0.0, init=False)

    def take(self, remembered: int) -> bool:
        """Spend one step; `False` when nothing is left."""
        if not self.spent:
            # What came before the search (a load that is to be judged) is not its own time.
            self._started = time.monotonic()
        self.spent += 1
        if self.spent > self.steps or remembered > self.memory:
            return False
        return self.spent % 1024 != 0 or time.monotonic() - self._started < self.seconds


@dataclass(frozen=True, slots=True)
class Found(Generic[O, R]):
    """The result of one search.

    Attributes:
        answer: legal, illegal, or unknown where the budget ran out.
        order: the calls in a legal order; where there is none, in the longest order found.
        stuck: the calls that had to come next in that longest order, and could not.
        states: how many configurations were remembered.
    """

    answer: Answer
    order: list[Call[O, R]]
    stuck: list[Call[O, R]]
    states: int


def search(
    model: Model[O, R, S],
    calls: Sequence[Call[O, R]],
    budget: Budget | None = None,
    *,
    use_precedence: bool = True,
) -> Found[O, R]:
    """Look for a legal order of calls that belong together.

    Args:
        model: what the object may do.
        calls: the calls, at least all those that bear on each other.
        budget: what the search may spend.
        use_precedence: whether to ask the model what comes before what. Without it an illegal
            history takes longer, and `order` and `stuck` tell more.
    """
    return _Search(model, calls, budget or Budget(), use_precedence).run()


_HEAD: Final = 0
_FOR_GOOD: Final = -2


class _Search(Generic[O, R, S]):
    """One depth-first search.

    The certain calls stand in a doubly linked list of their invocations and completions in time
    order (Lowe's representation); entry 0 is its head. A configuration is: the number of the
    first certain call that is not placed, a bit mask of placed calls from there on, a bit mask
    of placed uncertain calls, and the state.
    """

    def __init__(
        self,
        model: Model[O, R, S],
        calls: Sequence[Call[O, R]],
        budget: Budget,
        use_precedence: bool,
    ) -> None:
        self.model = model
        self.budget = budget
        ordered = sorted(calls, key=lambda call: call.invoked)
        self.certain = [call for call in ordered if call.deadline is not None]
        self.uncertain = [call for call in ordered if call.deadline is None]
        last: dict[tuple[O, R], int] = {}
        self.twin_before: list[int] = []
        for index, call in enumerate(self.uncertain):
            same = (call.operation, call.outcome)
            self.twin_before.append(last.get(same, -1))
            last[same] = index
        self._group_uncertain()
        self.pure = [model.is_pure(call.operation, call.outcome) for call in self.certain]
        # At equal times an invocation comes first: the calls then overlap, which forbids less.
        moments: list[tuple[int, int, int]] = []
        self.deadlines: list[int] = [
            call.deadline for call in self.certain if call.deadline is not None
        ]
        for index, call in enumerate(self.certain):
            moments += [(call.invoked, 0, index), (self.deadlines[index], 1, index)]
        moments.sort()
        size = len(moments) + 1
        self.next: list[int] = [*range(1, size), -1]
        self.previous: list[int] = [*range(-1, size - 1)]
        self.call_at = [-1] * size
        self.ends = [False] * size
        self.entry = [0] * len(self.certain)
        self.end_of = [0] * len(self.certain)
        for place, (_, ending, index) in enumerate(moments, 1):
            self.call_at[place] = index
            self.ends[place] = bool(ending)
            (self.end_of if ending else self.entry)[index] = place

        # How many calls have to be placed before each, and which wait for it.
        self.blockers = [0] * len(self.certain)
        self.followers: list[list[int]] = [[] for _ in self.certain]
        if use_precedence:
            self._note_precedence(calls)

    def _group_uncertain(self) -> None:
        """Put uncertain calls that touch the same parts of the state, also by others, together."""
        owner: dict[Hashable, int] = {}
        self.groups = list(range(len(self.uncertain)))

        def root(index: int) -> int:
            while self.groups[index] != index:
                index = self.groups[index]
            return index

        for index, call in enumerate(self.uncertain):
            for key in self.model.keys(call.operation):
                self.groups[root(owner.setdefault(key, index))] = root(index)
        self.groups = [root(index) for index in range(len(self.uncertain))]
        group_of = {key: self.groups[index] for key, index in owner.items()}
        self.bearing = [
            frozenset(group_of[key] for key in self.model.keys(call.operation) if key in group_of)
            for call in self.certain
        ]

    def _note_precedence(self, calls: Sequence[Call[O, R]]) -> None:
        place = {id(call): index for index, call in enumerate(self.certain)}
        for one, other in self.model.precedence(calls):
            self.followers[place[id(one)]].append(place[id(other)])
            self.blockers[place[id(other)]] += 1

    def _can_be_ordered(self) -> bool:
        """Whether any order respects both the times and what comes before what."""
        placed = []
        cursor = self.next[_HEAD]
        while cursor != -1 and not self.ends[cursor]:
            index = self.call_at[cursor]
            if self.blockers[index]:
                cursor = self.next[cursor]
                continue
            self._lift(index)
            placed.append(index)
            cursor = self.next[_HEAD]
        for index in reversed(placed):
            self._unlift(index)
        return len(placed) == len(self.certain)

    def run(self) -> Found[O, R]:
        """Search until an order is found, none is left, or the budget is spent."""
        if not self._can_be_ordered():
            return Found(Answer.ILLEGAL, [], self._due(), 0)
        model, budget = self.model, self.budget
        state = model.initial
        first, window, used = 0, 0, 0
        left = len(self.certain)
        remembered: set[Any] = {(0, 0, 0, state)}
        # One entry a placed call: (certain?, its index, the configuration before, where to resume)
        trail: list[tuple[bool, int, tuple[int, int, int, S], int]] = []
        best: list[Call[O, R]] = []
        stuck: list[Call[O, R]] = []
        cursor = self.next[_HEAD]
        maybe = 0  # the next uncertain call to try, once the certain ones are exhausted
        horizon = 0  # the latest invocation that can still be next
        due: set[int] = set()  # the groups of uncertain calls that may bear on what is due
        while left:
            in_list = cursor != -1 and not self.ends[cursor]
            if in_list or maybe < len(self.uncertain):
                if in_list:
                    index = self.call_at[cursor]
                    if self.blockers[index]:
                        cursor = self.next[cursor]
                        continue
                    call = self.certain[index]
                else:
                    if maybe == 0:
                        horizon, due = self._horizon(), self._due_groups()
                    index, maybe = maybe, maybe + 1
                    call = self.uncertain[index]
                    if call.invoked > horizon:
                        maybe = len(self.uncertain)
                        continue
                    if (
                        used >> index & 1
                        or self.groups[index] not in due
                        or self._has_open_twin(index, used)
                    ):
                        continue
                if not budget.take(len(remembered)):
                    return Found(Answer.UNKNOWN, best, stuck, len(remembered))
                after = model.step(state, call.operation, call.outcome)
                if after is not None and (in_list or after != state):
                    if in_list:
                        window2 = window | 1 << (index - first)
                        first2 = first
                        while window2 & 1:
                            window2 >>= 1
                            first2 += 1
                        key = (first2, window2, used, after)
                    else:
                        key = (first, window, used | 1 << index, after)
                    if key not in remembered:
                        remembered.add(key)
                        if in_list:
                            # A pure call is placed for good: on the way back there is nothing
                            # to try in its place.
                            resume = _FOR_GOOD if self.pure[index] else cursor
                            self._lift(index)
                            left -= 1
                        else:
                            resume = maybe
                        trail.append((in_list, index, (first, window, used, state), resume))
                        first, window, used, state = key
                        cursor, maybe = self.next[_HEAD], 0
                        continue
                    if in_list and self.pure[index]:
                        # The same placement was tried from an equal configuration: a dead end.
                        cursor, maybe = -1, len(self.uncertain)
                        continue
                if in_list:
                    cursor = self.next[cursor]
                continue
            if len(trail) > len(best) or not stuck:
                best = self._order(trail)
                stuck = self._due()
            while True:
                if not trail:
                    return Found(Answer.ILLEGAL, best, stuck, len(remembered))
                certain, index, (first, window, used, state), resume = trail.pop()
                if certain:
                    self._unlift(index)
                    left += 1
                    if resume == _FOR_GOOD:
                        continue
                    cursor, maybe = self.next[resume], 0
                else:
                    cursor, maybe = -1, resume
                    horizon, due = self._horizon(), self._due_groups()
                break
        return Found(Answer.LEGAL, self._order(trail), [], len(remembered))

    def _has_open_twin(self, index: int, used: int) -> bool:
        """Whether an equal call that began earlier is not placed: it may stand in for this one."""
        twin = self.twin_before[index]
        return twin >= 0 and not used >> twin & 1

    def _horizon(self) -> int:
        """The earliest completion among the certain calls that are not placed."""
        entry = self.next[_HEAD]
        while entry != -1:
            if self.ends[entry]:
                deadline: int = self.deadlines[self.call_at[entry]]
                return deadline
            entry = self.next[entry]
        raise AssertionError("a certain call has no completion")

    def _due_groups(self) -> set[int]:
        """The groups that may bear on the certain calls that could come next.

        Any other uncertain call can as well be placed later, when such a call is due.
        """
        found: set[int] = set()
        entry = self.next[_HEAD]
        while entry != -1 and not self.ends[entry]:
            found |= self.bearing[self.call_at[entry]]
            entry = self.next[entry]
        return found

    def _due(self) -> list[Call[O, R]]:
        """The certain calls that could come next."""
        due = []
        entry = self.next[_HEAD]
        while entry != -1 and not self.ends[entry]:
            due.append(self.certain[self.call_at[entry]])
            entry = self.next[entry]
        return due

    def _order(
        self, trail: Sequence[tuple[bool, int, tuple[int, int, int, S], int]]
    ) -> list[Call[O, R]]:
        return [(self.certain if entry[0] else self.uncertain)[entry[1]] for entry in trail]

    def _lift(self, index: int) -> None:
        for follower in self.followers[index]:
            self.blockers[follower] -= 1
        for entry in (self.entry[index], self.end_of[index]):
            before, after = self.previous[entry], self.next[entry]
            self.next[before] = after
            if after != -1:
                self.previous[after] = before

    def _unlift(self, index: int) -> None:
        for follower in self.followers[index]:
            self.blockers[follower] += 1
        for entry in (self.end_of[index], self.entry[index]):
            before, after = self.previous[entry], self.next[entry]
            self.next[before] = entry
            if after != -1:
                self.previous[after] = entry
