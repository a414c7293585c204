"""The documentation's pages on the races, written from their data and from real runs.

`pages()` gives Markdown by path: a list of the races, a page a race with the trace of the wrong
runtime that it is known for, and what a store must do for them.
"""

from __future__ import annotations

from ..backend import Backend
from ..contract.rules import Rule, rules
from .catalogue import RACES
from .exploring import RaceVerdict, play_race
from .play import Play
from .race import Parameters, Race, Reach
from .wrong import WRONG, Wrong


def pages(backend: Backend) -> dict[str, str]:
    """Every page, as Markdown by its path in the documentation.

    Args:
        backend: a started instance of a backend in memory, on which the traces are made.
    """
    found = {"races.md": _list(), "what-loom-needs.md": _needs()}
    for race in RACES.values():
        found[f"races/{race.id.lower()}.md"] = race_page(race, backend)
    return found


def race_page(race: Race, backend: Backend) -> str:
    """The page of one race, with what a run by its wrong runtime shows."""
    rule = race.rule
    parts = [
        f"# {race.id}: {race.title}",
        rule.promise,
        f"Why: {rule.why}",
        f"Source: {rule.source}.",
        "## What must hold in every schedule",
        *_holding(race, backend),
        "## What it rests on",
        "Where the store breaks one of these, the race is lost, and the failure names the rule:",
        "\n".join(
            f"- [{one}](../rules.md#{one.lower()}) {rules()[one].promise}" for one in race.rests_on
        ),
        *_needed(race),
        "## How it is run",
        _variants(race, backend),
        "## What loses it",
        _losers(race),
        *_shown(race, backend),
    ]
    return "\n\n".join(parts) + "\n"


def _holding(race: Race, backend: Backend) -> list[str]:
    found: dict[Parameters, list[str]] = {}
    for parameters in race.variants:
        play = Play(race, backend, parameters)
        scene = play.scene_on(None)
        race.nodes(scene)
        found[parameters] = list(dict.fromkeys(check.says for check in race.holds(scene)))
    lists = list(found.values())
    if all(one == lists[0] for one in lists):
        return ["\n".join(f"- {says}" for says in lists[0])]
    parts: list[str] = []
    for parameters, sentences in found.items():
        parts.append(f"With {str(parameters) or 'nothing set'}:")
        parts.append("\n".join(f"- {says}" for says in sentences))
    return parts


def _needed(race: Race) -> list[str]:
    if not race.needs:
        return []
    lacks = " or ".join(_LACKS[need] for need in sorted(race.needs))
    return [f"It is not offered where {lacks}."]


def _variants(race: Race, backend: Backend) -> str:
    lines = []
    for parameters in race.variants:
        verdict = play_race(race, backend, parameters)
        told = str(parameters) or f"{parameters.nodes} nodes"
        lines.append(f"- {told}: {_finding(verdict)}")
    names = ", ".join(
        f"`{name}` ({', '.join(_value(value) for value in values)})"
        for name, values in race.varies.items()
    )
    return "\n".join([*lines, "", f"A property draws more: {names}."])


def _finding(verdict: RaceVerdict) -> str:
    told = verdict.verdict
    return f"{told.finding.value}, {told.schedules:,} of them ({told.bound})"


def _value(value: object) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _losers(race: Race) -> str:
    rows = ["| name | what is wrong with it | source |", "|---|---|---|"]
    own = WRONG[race.wrong]
    others = [one for one in WRONG.values() if race.id in one.loses and one is not own]
    for one in (own, *others):
        name = f"**`{one.name}`**" if one is own else f"`{one.name}`"
        rows.append(f"| {name} | {_cell(one.fault)} | {_cell(one.source)} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _shown(race: Race, backend: Backend) -> list[str]:
    wrong = WRONG[race.wrong]
    verdict = headline(race, wrong, backend)
    return [
        f"## What `{wrong.name}` shows",
        f"{wrong.fault} In some schedule {race.shows}:",
        "<!-- not run: this page is generated, and compared with what the races say -->\n"
        f"```sh\nloom-conformance race {race.id} --runtime {wrong.name}\n```",
        "<!-- output -->\n```text\n" + "\n".join(verdict.lines()) + "\n```",
    ]


def headline(race: Race, wrong: Wrong, backend: Backend) -> RaceVerdict:
    """How something wrong loses a race, judged by what the race is known for."""
    return play_race(
        race,
        backend,
        subject=wrong.subject,
        runtime=wrong.name,
        called="memory",
        headline=True,
        reach=Reach("bounded", preemptions=3),
    )


def _list() -> str:
    rows = ["| race | what happens | lost by |", "|---|---|---|"]
    for race in RACES.values():
        page = f"races/{race.id.lower()}.md"
        rows.append(f"| [{race.id}]({page}) | {_cell(race.title)} | `{race.wrong}` |")
    wrongs = ["| name | fault | loses |", "|---|---|---|"]
    for one in WRONG.values():
        loses = ", ".join(
            race_id.removeprefix("RACE-") for race_id in RACES if race_id in one.loses
        )
        wrongs.append(f"| `{one.name}` | {_cell(one.fault)} | {loses} |")
    return (
        "\n\n".join(
            [
                "# The races",
                _INTRODUCTION,
                "\n".join(rows),
                "## What must lose",
                _LOSERS,
                "\n".join(wrongs),
                "## A runtime of your own",
                _OWN,
            ]
        )
        + "\n"
    )


def _needs() -> str:
    by_rule: dict[str, list[Race]] = {}
    for race in RACES.values():
        for one in race.rests_on:
            by_rule.setdefault(one, []).append(race)
    rows = ["| rule | what the store promises | races that are lost without it |", "|---|---|---|"]
    for one in sorted(by_rule, key=list(rules()).index):
        rows.append(
            f"| [{one}](rules.md#{one.lower()}) | {_promise(rules()[one])} | "
            f"{', '.join(_link(race) for race in by_rule[one])} |"
        )
    sections = []
    for race in RACES.values():
        rests = ", ".join(f"[{one}](rules.md#{one.lower()})" for one in race.rests_on)
        sections.append(f"- {_link(race)} {race.title}: {rests}")
    return (
        "\n\n".join(
            [
                "# What your store must do for Loom",
                _NEEDS,
                "## From the race to the rules",
                "\n".join(sections),
                "## From the rule to the races",
                "\n".join(rows),
            ]
        )
        + "\n"
    )


def _promise(rule: Rule) -> str:
    return _cell(rule.promise)


def _link(race: Race) -> str:
    return f"[{race.id}](races/{race.id.lower()}.md)"


_LACKS = {
    "coalescing": "the store's writes cannot share a flush",
    "fencing": "the store has no fences",
    "ids in the whole store": "envelope ids are unique in one execution only",
    "scoping": "tenant scopes are declined",
}

_INTRODUCTION = """\
Each race is a named scenario of the runtime that runs on any backend, under every schedule of its
nodes' store calls. The kit's runtime must win it in every schedule. The wrong runtime beside it is
the earlier behaviour that the decision record did away with, and must lose it in some schedule: a
race that nothing can lose would prove nothing.

<!-- run -->
```sh
loom-conformance races
loom-conformance race RACE-2 --backend sqlite
```

Each has a page of its own, with the trace of a run that loses it. They are a profile of the suites
too: `loom-conformance check BACKEND --profile races`."""

_LOSERS = """\
Every entry has one fault. It loses exactly the races that it claims, on every backend, and the same
token shows the loss on each of them; the project's tests hold all of them to that."""

_OWN = """\
Someone who writes this runtime, or changes it, can put it in place of the kit's. Subclass
`loom_conformance.runtime.Assembly` and override the parts that are yours: `runtime`, `timers`,
`worker`, `dispatcher`, `supervising_dispatcher`. Each part needs only its protocol, which
`loom_conformance.runtime.interface` tells.

<!-- file=ownruntime.py -->
```python
from loom_conformance.runtime import Assembly, Event, ExecutionJournal, WorkflowRuntime


class Eager(WorkflowRuntime):
    async def bootstrap(self, journal: ExecutionJournal, started: Event) -> None:
        journal.commit(started)  # does not wait until sequence 0 is durable


class EagerAssembly(Assembly):
    def runtime(self, deps):
        return Eager(deps)
```

<!-- run exit=1 -->
```sh
loom-conformance race RACE-1 --runtime ownruntime:EagerAssembly
```"""

_NEEDS = """\
The runtime holds no lock of its own. Whether an execution is started once, whether a node that was
taken over can still write, whether a refused write left a trace: all of that it learns from the
store, and from nothing else. This page ties each race to the rules that it rests on. When a race is
lost on your store, the failure names the rule that was broken beneath it.

In short, a store for Loom must

- refuse a second envelope for a taken slot, with the contract's own error, however many write at
  once: that is what makes a chosen execution id a lock;
- store a batch whole or not at all, so that a write which shared a refused flush can be tried
  again;
- show at once, to every handle, what it has acknowledged, so that a conflict can be confirmed;
- hand out growing fence tokens and hold every write to them, those without a token too;
- say a fault when there is a fault: one that looks like a conflict makes a start vanish."""
