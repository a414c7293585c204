"""Wrong stores and correct variants by name, as their modules put them here.

A module whose name begins with one of `KINDS` is found by itself; it puts its backends under
`@wrong("name-of-the-claim")` or `@variant("name")`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from loom_conformance.backend import Backend
from loom_conformance.lab.settings import Depth

B = TypeVar("B", bound=type[Backend])
D = TypeVar("D", bound=Backend)

KINDS: Final = ("memory_", "decorators_", "sqlite_", "postgres_", "faulty_")

PLAIN_PATHS: Final = ("append", "batch-of-one", "batch-first", "batch-middle", "batch-last")
COALESCED_PATHS: Final = ("coalesced-append", "coalesced-batch-middle")


@dataclass(frozen=True, slots=True)
class Subject:
    """A backend to judge, and how.

    Attributes:
        name: the claim's name, or the variant's.
        backend: the backend whose stores have the fault.
        deadline: seconds that a call may take; short where the fault is to hang.
        paths: the write paths that rules are tried on.
        depth: how deep it is judged under load and faults; `"quick"` leaves them out.
        load: whether it is put under load at that depth; faults alone where load would show the
            fault by chance only.
    """

    name: str
    backend: type[Backend]
    deadline: float = 10.0
    paths: tuple[str, ...] = PLAIN_PATHS + COALESCED_PATHS
    depth: Depth = "quick"
    load: bool = True

    @property
    def kind(self) -> str:
        """The first word of its module's name, such as `"memory"` or `"sqlite"`."""
        return self.backend.__module__.rpartition(".")[2].partition("_")[0]


@dataclass(frozen=True, slots=True)
class Variant:
    """A correct store that differs from the reference.

    Attributes:
        subject: the backend and how it is judged.
        advice: the SHOULD rules that it means not to follow.
    """

    subject: Subject
    advice: frozenset[str] = frozenset()


_WRONG: Final[dict[str, Subject]] = {}
_VARIANTS: Final[dict[str, Variant]] = {}


def backend_of(store: type[Any], base: type[D], **declarations: Any) -> type[D]:
    """A backend for a store's class, to be found by other processes as an attribute of it."""
    described = {"__module__": store.__module__, "__qualname__": f"{store.__qualname__}.backend"}
    made: type[D] = type(
        f"{store.__name__}Backend", (base,), {"store": store, **described, **declarations}
    )
    store.backend = made
    return made


def wrong(
    claim: str,
    *,
    deadline: float = 10.0,
    paths: tuple[str, ...] = PLAIN_PATHS + COALESCED_PATHS,
    depth: Depth = "quick",
    load: bool = True,
) -> Callable[[B], B]:
    """Enter a backend as the wrong store of a claim.

    Raises:
        ValueError: the claim has a store already.
    """

    def enter(backend: B) -> B:
        if claim in _WRONG:
            raise ValueError(f"two wrong stores for the claim {claim!r}")
        _WRONG[claim] = Subject(claim, backend, deadline, paths, depth, load)
        return backend

    return enter


def variant(
    name: str,
    *,
    advice: tuple[str, ...] = (),
    deadline: float = 10.0,
    paths: tuple[str, ...] = PLAIN_PATHS + COALESCED_PATHS,
) -> Callable[[B], B]:
    """Enter a backend as a correct variant.

    Raises:
        ValueError: there is one of this name already.
    """

    def enter(backend: B) -> B:
        if name in _VARIANTS:
            raise ValueError(f"two variants are named {name!r}")
        _VARIANTS[name] = Variant(Subject(name, backend, deadline, paths), frozenset(advice))
        return backend

    return enter


@cache
def _load() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith(KINDS):
            importlib.import_module(f"{__package__}.{module.name}")


def wrong_stores() -> Mapping[str, Subject]:
    """Every wrong store by the name of its claim."""
    _load()
    return _WRONG


def variants() -> Mapping[str, Variant]:
    """Every correct variant by its name."""
    _load()
    return _VARIANTS
