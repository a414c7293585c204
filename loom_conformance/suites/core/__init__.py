"""The core profile: what every store promises, one module an area."""

from .append import AppendSuite
from .cancelling import CancellingSuite
from .closing import ClosingSuite
from .data import DataSuite
from .errors import ErrorSuite
from .identity import IdentitySuite
from .liveness import LivenessSuite
from .reads import ReadSuite
from .sequence import SequenceSuite


class CoreSuite(
    DataSuite,
    ReadSuite,
    ErrorSuite,
    IdentitySuite,
    SequenceSuite,
    AppendSuite,
    CancellingSuite,
    ClosingSuite,
    LivenessSuite,
):
    """Appends, sequences, identities, errors, reads, data and liveness."""
