"""The commands `races`, `race` and `replay`: what they say, and with which exit code."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest

from loom_conformance.cli import main
from loom_conformance.interleave.explore import Progress
from loom_conformance.races import command
from loom_conformance.races.catalogue import RACES
from loom_conformance.races.command import Asked, Status
from loom_conformance.races.race import Parameters
from loom_conformance.races.wrong import WRONG


def asked(race: str = "RACE-2", backend: str = "memory", **more: object) -> Asked:
    return Asked(race, backend, **more)  # type: ignore[arg-type]


def token_of(lines: list[str]) -> str:
    (line,) = [line for line in lines if line.startswith("  Replay: ")]
    return next(word for word in shlex.split(line) if word.startswith("lk1"))


# --- lists --------------------------------------------------------------------------------------


def test_races_lists_all_of_them_and_what_loses_each() -> None:
    text = "\n".join(command.races().lines)
    for race in RACES.values():
        assert race.title in text
        assert f"lost by {race.wrong}" in text
    assert f"20 races, {len(WRONG)} wrong" in text


def test_wrong_lists_what_must_lose_and_what_it_loses() -> None:
    text = "\n".join(command.wrong().lines)
    assert "fencing-start" in text
    assert "loses RACE-7, RACE-8" in text


# --- race ---------------------------------------------------------------------------------------


def test_a_race_that_holds_says_how_far() -> None:
    answer = command.race(asked("2"))
    assert answer.code == command.HOLDS
    assert answer.lines[0] == "RACE-2 [memory]: holds in all 18 schedules (up to equivalence)"


def test_it_says_that_calls_were_taken_as_one_step_where_steps_look_inside() -> None:
    told = " ".join(command.race(asked("2")).lines)
    assert "Each call of the store was taken as one step" in told
    assert "--steps looks inside the calls" in told
    assert "--steps" not in " ".join(command.race(asked("2", steps=True)).lines)
    assert not RACES["RACE-19"].stepped
    assert "--steps" not in " ".join(command.race(asked("19")).lines)


def test_every_variant_is_played_unless_one_is_asked_for() -> None:
    assert len(command.race(asked("RACE-9")).verdicts) == 2
    one = command.race(asked("race-9", given=["rival=recover"]))
    assert [verdict.parameters for verdict in one.verdicts] == [Parameters(rival="recover")]
    assert "(recover)" in one.lines[0]


def test_a_race_that_is_lost_shows_trace_verdict_and_token() -> None:
    answer = command.race(asked(runtime="look-before-start"))
    text = "\n".join(answer.lines)
    assert answer.code == command.LOST
    assert "FAIL RACE-2 [memory, run by look-before-start]" in text
    assert "the effect 'audit' ran twice" in text
    assert "replayed 10 of 10" in text
    assert "node A" in text
    assert "--runtime look-before-start" in text


def test_all_runs_all_schedules_with_the_nodes_that_are_asked_for() -> None:
    answer = command.race(asked("RACE-1", nodes=3, everything=True))
    assert answer.code == command.HOLDS
    assert "(3 nodes): holds in all " in answer.lines[0]


def test_a_time_that_is_too_short_is_no_all() -> None:
    answer = command.race(asked("RACE-11", nodes=3, seconds=0.3))
    assert answer.code == command.HOLDS
    assert "holds in the " in answer.lines[0]
    assert "not all" in answer.lines[0]


def test_what_claims_not_to_lose_is_told_so() -> None:
    answer = command.race(asked(runtime="lease-looked-at"))
    assert answer.code == command.HOLDS
    assert answer.lines[-1] == "lease-looked-at does not claim to lose RACE-2."


def test_a_race_is_stepped_where_it_can_be() -> None:
    answer = command.race(asked(steps=True))
    assert answer.code == command.HOLDS
    assert "RACE-2 [memory, by steps]: holds" in answer.lines[0]
    refused = command.race(asked("RACE-10", steps=True))
    assert refused.code == command.USAGE
    assert refused.lines == [
        "RACE-10 cannot be led by steps; RACE-2, RACE-3, RACE-8, RACE-16, RACE-20 can"
    ]


def test_a_race_that_the_store_cannot_run_is_not_offered(tmp_path: Path) -> None:
    answer = command.race(asked("RACE-7", "race_backends:NoFences"))
    assert answer.code == command.COULD_NOT_RUN
    assert answer.lines == ["not offered: declined: one node only"]


def test_a_backend_that_does_not_open_is_said_in_a_line() -> None:
    answer = command.race(asked(backend="race_backends:Broken"))
    assert answer.code == command.COULD_NOT_RUN
    assert answer.lines == [
        "the backend 'race_backends:Broken' does not open: OSError: no such server"
    ]


# --- a runtime of one's own ---------------------------------------------------------------------


def test_a_runtime_of_ones_own_is_played() -> None:
    answer = command.race(asked("RACE-1", runtime="race_backends:EagerAssembly"))
    assert answer.code == command.LOST
    assert "run by race_backends:EagerAssembly" in answer.lines[0]
    again = command.replay(
        asked("RACE-1", "sqlite", runtime="race_backends:EagerAssembly"), token_of(answer.lines)
    )
    assert again.code == command.LOST


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("look-before", "there is no runtime 'look-before'; did you mean look-before-start?"),
        ("nowhere:Assembly", "cannot load the runtime 'nowhere:Assembly': ModuleNotFoundError"),
        ("race_backends:NoFences", "it has no runtime, timers, worker, dispatcher"),
    ],
)
def test_what_is_no_runtime_is_said_in_a_line(name: str, line: str) -> None:
    answer = command.race(asked(runtime=name))
    assert answer.code == command.USAGE
    assert len(answer.lines) == 1
    assert line in answer.lines[0]


# --- replay -------------------------------------------------------------------------------------


@pytest.mark.parametrize("race_id", ["RACE-2", "RACE-11", "RACE-15"])
def test_a_token_replays_on_another_backend(race_id: str) -> None:
    name = RACES[race_id].wrong
    token = token_of(command.race(asked(race_id, runtime=name)).lines)
    again = command.replay(asked(race_id, "sqlite", runtime=name), token)
    assert again.code == command.LOST
    assert f"[sqlite, run by {name}]" in again.lines[0]


def test_a_token_of_drawn_parameters_finds_them() -> None:
    given = ["tenant=acme", "fenced=true"]
    found = command.race(asked(runtime="look-before-start", given=given))
    line = next(line for line in found.lines if line.startswith("  Replay: "))
    assert "--set fenced=true --set tenant=acme" in line.lower()
    again = command.replay(asked(runtime="look-before-start"), token_of(found.lines))
    assert again.code == command.LOST
    assert "fenced, tenant 'acme'" in again.lines[0]


def test_the_right_runtime_does_not_follow_a_wrong_ones_token() -> None:
    token = token_of(command.race(asked(runtime="look-before-start")).lines)
    answer = command.replay(asked(), token)
    assert answer.code == command.COULD_NOT_RUN
    assert "inconclusive" in answer.lines[0]
    told = " ".join(" ".join(answer.lines).split())
    assert "what runs here does not take this schedule, or no longer" in told


def test_a_token_of_steps_asks_for_steps() -> None:
    found = command.race(asked("2", "test_race_stepping:ChecksThenWritesBackend", steps=True))
    assert found.code == command.LOST, found.lines
    token = token_of(found.lines)
    answer = command.replay(asked("2", "test_race_stepping:ChecksThenWritesBackend"), token)
    assert answer.code == command.USAGE
    assert answer.lines == [f"{token} was made with --steps: give --steps here too"]


@pytest.mark.parametrize(
    ("token", "line"),
    [
        ("hello", "is no schedule token"),
        ("lk9-5cqwa-BAa6", "version 9"),
    ],
)
def test_a_bad_token_is_said_in_a_line(token: str, line: str) -> None:
    answer = command.replay(asked(), token)
    assert answer.code == command.USAGE
    assert answer.complaint
    assert len(answer.lines) == 1
    assert line in answer.lines[0]


def test_a_token_of_another_race_is_said_in_a_line() -> None:
    token = token_of(command.race(asked("RACE-18", runtime="bootstrap-after-effect")).lines)
    answer = command.replay(asked("RACE-19"), token)
    assert answer.code == command.USAGE
    assert len(answer.lines) == 1
    assert "RACE-19" in answer.lines[0]


# --- what is asked for --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"nodes": 9}, "a race has 1 to 8 nodes, not 9"),
        ({"given": ["node=3"]}, "'node=3' sets no parameter; did you mean nodes?"),
        ({"given": ["fenced"]}, "'fenced' sets no parameter; did you mean fenced?"),
        ({"given": ["fenced=maybe"]}, "'maybe' is no value for fenced"),
        ({"given": ["linger=soon"]}, "'soon' is no value for linger"),
    ],
)
def test_a_parameter_that_is_none_is_said_in_a_line(more: dict[str, object], line: str) -> None:
    answer = command.race(asked(**more))  # type: ignore[arg-type]
    assert answer.code == command.USAGE
    assert len(answer.lines) == 1
    assert answer.lines[0].startswith(line)


def test_an_unknown_race_and_an_unknown_backend_are_said() -> None:
    assert command.race(asked("RACE-99")).lines[0].startswith("there is no race 'RACE-99'")
    answer = command.race(asked(backend="memroy"))
    assert answer.code == command.USAGE
    assert "did you mean 'memory'" in answer.lines[0]


def test_the_command_line_hands_everything_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["race", "RACE-9", "--set", "rival=cancel", "--nodes", "2"]) == 0
    assert "RACE-9 [memory] (cancel): holds in all" in capsys.readouterr().out
    assert main(["race", "RACE-2", "--steps"]) == 0
    assert "by steps" in capsys.readouterr().out
    assert main(["replay", "RACE-2", "lk9-5cqwa-BAa6"]) == 2
    assert "version 9" in capsys.readouterr().err


# --- progress -----------------------------------------------------------------------------------


def test_progress_has_a_rate_and_a_bound() -> None:
    lines: list[str] = []
    tell = command._progress(RACES["RACE-2"], Parameters(nodes=3), lines.append)
    tell(Progress(1200, 3.0, "at most 2 preemptions"))
    assert lines == ["RACE-2 --nodes 3: 1,200 schedules, 400/s, 3 s, at most 2 preemptions"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_is_written_over_and_taken_away() -> None:
    stream = Terminal()
    status = Status(stream)
    status("first and long")
    status("second")
    status.clear()
    assert stream.getvalue() == "\rfirst and long\rsecond        \r      \r"


def test_a_log_gets_a_line_now_and_then() -> None:
    stream = io.StringIO()
    seldom, often = Status(stream, every=1000), Status(stream, every=0)
    seldom("not yet")
    assert stream.getvalue() == ""
    often("now")
    often.clear()
    assert stream.getvalue() == "now\n"
