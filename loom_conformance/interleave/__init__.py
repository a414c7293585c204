"""Every schedule of a race, on any backend, replayed from a token."""

from .explore import Limits, Progress, explore, replay
from .node import Node
from .scenario import Outcome, Scenario
from .token import BadToken
from .trace import Trace
from .verdict import Counterexample, Finding, Verdict

__all__ = [
    "BadToken",
    "Counterexample",
    "Finding",
    "Limits",
    "Node",
    "Outcome",
    "Progress",
    "Scenario",
    "Trace",
    "Verdict",
    "explore",
    "replay",
]
