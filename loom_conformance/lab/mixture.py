"""Loads for Hypothesis to choose and to shrink: fewer calls, fewer tasks, less mischief first."""

from __future__ import annotations

from hypothesis import strategies as st

from .load import KINDS, Load


def loads(
    prefixes: st.SearchStrategy[str], *, most_calls: int = 80, fencing: bool = True
) -> st.SearchStrategy[Load]:
    """Loads of one process.

    Args:
        prefixes: beginnings of execution ids; each load needs executions that nothing wrote.
        most_calls: the largest number of calls.
        fencing: whether executions may be fenced.
    """
    weights = st.fixed_dictionaries(
        {"append": st.integers(1, 10), **{kind: st.integers(0, 10) for kind in _OTHERS}}
    )
    return st.builds(
        Load,
        prefix=prefixes,
        seed=st.integers(0, 2**16),
        tasks=st.integers(1, 5),
        handles=st.integers(1, 3),
        executions=st.integers(1, 4),
        calls=st.integers(1, most_calls),
        length=st.integers(3, 20),
        fenced=st.sampled_from([0.0, 0.5, 1.0] if fencing else [0.0]),
        mischief=st.sampled_from([0.0, 0.1, 0.5]),
        batch=st.integers(1, 6),
        cancel=st.sampled_from([0.0, 0.1]),
        weights=weights,
    )


_OTHERS = tuple(kind for kind in KINDS if kind != "append")
