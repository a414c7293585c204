"""Standard streams that a store under test cannot close on everyone else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


class _Unclosable:
    """A stream that passes everything on but `close`."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Unclosable:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it open."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def close(self) -> None:
        """Leave it open: it is not the store's to close."""


@contextmanager
def kept_open() -> Iterator[None]:
    """Put streams in place of `sys.stdout` and `sys.stderr` whose `close` does nothing."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Unclosable(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
