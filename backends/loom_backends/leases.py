"""What every lease store of ours asks of its arguments."""

from __future__ import annotations

import math

from loom_conformance.spi import check_key


def check_lease(name: str, holder: str) -> None:
    """Refuse what is no name or no holder.

    Raises:
        InvalidEnvelopeError: with the argument and what is wrong with it.
    """
    check_key("name", name)
    check_key("holder", holder)


def check_ttl(ttl: float) -> float:
    """The time to live in seconds as a float.

    Raises:
        ValueError: it is no finite number greater than 0.
    """
    given: object = ttl
    try:
        if isinstance(given, int | float) and not isinstance(given, bool) and given > 0:
            seconds = float(given)
            if math.isfinite(seconds):
                return seconds
    except OverflowError:
        pass
    raise ValueError(f"ttl must be a finite number of seconds greater than 0, not {ttl!r:.80}")
