"""The core profile: what every store promises, one module an area."""

from .append import AppendSuite
from .data import DataSuite
from .errors import ErrorSuite
from .identity import IdentitySuite
from .liveness import LivenessSuite
from .reads import ReadSuite
from .sequence import SequenceSuite


class CoreSuite(
    DataSuite, ReadSuite, ErrorSuite, IdentitySuite, SequenceSuite, AppendSuite, LivenessSuite
):
    """Appends, sequences, identities, errors, reads, data and liveness."""
