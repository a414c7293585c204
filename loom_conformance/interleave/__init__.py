"""Every schedule of a race, on any backend, replayed from a token."""

from .explore import Limits, Progress, explore, replay
from .node import Node
from .scenario import Outcome, Scenario
from .steps import Call, Settled, explore_steps, replay_steps
from .token import BadToken
from .trace import Trace
from .verdict import Counterexample, Finding, Verdict

__all__ = [
    "BadToken",
    "Call",
    "Counterexample",
    "Finding",
    "Limits",
    "Node",
    "Outcome",
    "Progress",
    "Scenario",
    "Settled",
    "Trace",
    "Verdict",
    "explore",
    "explore_steps",
    "replay",
    "replay_steps",
]
