"""The suites for the backend that `--loom-backend` names."""

from __future__ import annotations

import pytest

from ..lab.selection import current
from .conformance import conformance

_backend = current().backend
if _backend is None:
    raise pytest.Collector.CollectError(
        "no backend to test: name one with --loom-backend, such as --loom-backend sqlite"
    )

TestBackend = conformance(_backend)
