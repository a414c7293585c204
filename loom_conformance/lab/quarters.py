"""A place for what Hypothesis stores, so that a run leaves nothing in the user's folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import configuration


@contextmanager
def away_from_home() -> Iterator[None]:
    """Let Hypothesis keep its files in a temporary folder for a while, and then where it did."""
    storage: Any = configuration.storage_directory(intent_to_write=False)
    # Older versions of Hypothesis give the path itself.
    home = getattr(storage, "path", storage)
    with tempfile.TemporaryDirectory(prefix="loom-hypothesis-") as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(home)
