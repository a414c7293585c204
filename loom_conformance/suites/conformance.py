"""All suites as one test class for a backend, and the list of what such a class must run."""

from __future__ import annotations

from typing import Any

import pytest

from ..backend import Backend
from ..lab.admission import AdmissionError, check_declarations
from .batch import BatchSuite
from .case import Case, cases_of
from .coalescing import CoalescingSuite
from .core import CoreSuite
from .durability import DurabilitySuite
from .faults import FaultSuite
from .fencing import FencingSuite
from .histories import HistorySuite
from .killed import KilledSuite
from .large import LargeSuite
from .leases import LeasesSuite
from .model import ModelSuite
from .processes import ProcessSuite
from .races import RacesSuite
from .range import RangeSuite
from .scoping import ScopingSuite
from .stepped import SteppedSuite


# Pytest begins with what the last base brings: that calls settle, then core, then the rest.
class Conformance(
    KilledSuite,
    HistorySuite,
    FaultSuite,
    RacesSuite,
    ModelSuite,
    SteppedSuite,
    LeasesSuite,
    ScopingSuite,
    CoalescingSuite,
    DurabilitySuite,
    ProcessSuite,
    LargeSuite,
    FencingSuite,
    RangeSuite,
    BatchSuite,
    CoreSuite,
):
    """Every rule of the contract as a test; a subclass names its backend."""

    backend: type[Backend]


def catalogue() -> list[Case]:
    """Every case of the kit, in the order in which they run."""
    return cases_of(Conformance)


def conformance(backend: type[Backend]) -> Any:
    """A test class that holds a backend to the contract.

    Use it in a test file: `TestMine = conformance(MyBackend)`.

    Raises:
        pytest.Collector.CollectError: the backend is declared wrongly; the message says how.
    """
    try:
        checked = check_declarations(backend)
    except AdmissionError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    return type(
        f"{checked.__name__}Conformance",
        (Conformance,),
        {"backend": checked, "__module__": checked.__module__, "__doc__": Conformance.__doc__},
    )
