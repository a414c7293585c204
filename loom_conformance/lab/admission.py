"""Whether a backend can be tested at all: its declarations, and what its factory returns."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping
from typing import Final

from ..backend import (
    Aging,
    Backend,
    Blocking,
    Coalescing,
    Crashing,
    Leasing,
    Networked,
    Scoping,
)
from ..contract.rules import PROFILES, rules

CORE_METHODS = ("append", "read_from", "close")

DECLARATIONS: Final = tuple(Backend.__annotations__)
"""What a backend may say of itself."""

HOOKS: Final = tuple(
    name
    for protocol in (Crashing, Coalescing, Scoping, Leasing, Aging, Blocking, Networked)
    for name, value in vars(protocol).items()
    if inspect.isfunction(value) and not name.startswith("_")
)
"""The methods that a backend may have and need not."""


class AdmissionError(ValueError):
    """A backend is declared or built wrongly, so that no test of it would mean anything."""


def check_declarations(backend: object) -> type[Backend]:
    """Return the backend's class, or say what is wrong with what it declares.

    Raises:
        AdmissionError: all that is wrong, one line each.
    """
    if not inspect.isclass(backend):
        raise AdmissionError(
            f"{backend!r} is no Backend class; pass the class itself, a subclass of "
            "loom_conformance.Backend"
        )
    if not issubclass(backend, Backend):
        raise AdmissionError(f"{_name(backend)} must be a subclass of loom_conformance.Backend")
    faults = list(_faults(backend))
    if faults:
        lines = "\n".join(f"  - {fault}" for fault in faults)
        raise AdmissionError(f"{_name(backend)} cannot be tested as it is declared:\n{lines}")
    return backend


def _faults(backend: type[Backend]) -> list[str]:
    faults = []
    missing = sorted(getattr(backend, "__abstractmethods__", ()))
    if missing:
        faults.append(f"it lacks {', '.join(missing)}")
    name = getattr(backend, "name", None)
    if not isinstance(name, str) or not name.strip():
        faults.append('name must be a short text, such as name = "mine"')
    scope = getattr(backend, "envelope_ids", None)
    if scope not in ("store", "execution"):
        faults.append(f'envelope_ids must be "store" or "execution", not {scope!r}')
    if backend.batch_scope not in ("store", "execution"):
        faults.append(f'batch_scope must be "store" or "execution", not {backend.batch_scope!r}')
    limit: object = backend.max_batch
    if limit is not None and (not isinstance(limit, int) or limit < 100):
        faults.append(f"max_batch must be None or an int of 100 or more, not {limit!r}")
    for flag in (
        "outlives_process",
        "one_process_at_a_time",
        "sparse_sequences",
        "sets_up_on_connect",
    ):
        if not isinstance(getattr(backend, flag), bool):
            faults.append(f"{flag} must be True or False, not {getattr(backend, flag)!r}")
    faults += _reasons("declined", backend.declined, set(PROFILES), "profile")
    if isinstance(backend.declined, Mapping) and "core" in backend.declined:
        faults.append('declined names "core", which cannot be declined')
    faults += _reasons("known_failing", backend.known_failing, set(rules()), "rule")
    faults += _misspelt(backend)
    return faults


def _misspelt(backend: type[Backend]) -> Iterator[str]:
    """Attributes that were meant as declarations, or as optional methods, and would be ignored."""
    for owner in backend.__mro__:
        if owner is Backend or not issubclass(owner, Backend):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name in DECLARATIONS or hasattr(Backend, name):
                continue
            known, alike = (HOOKS, 0.9) if callable(value) else (DECLARATIONS, 0.72)
            near = [] if name in HOOKS else difflib.get_close_matches(name, known, 1, alike)
            if near:
                yield (
                    f"{name} is nothing that the kit knows; did you mean {near[0]}? (If it is "
                    f"something of your own, call it _{name}.)"
                )


def _reasons(declaration: str, given: object, known: set[str], what: str) -> list[str]:
    if not isinstance(given, Mapping):
        return [f"{declaration} must map a {what} to a reason, not be {given!r}"]
    faults = []
    for key, reason in given.items():
        if key not in known:
            faults.append(f"{declaration} names {key!r}, which is no {what} of the contract")
        if not isinstance(reason, str) or not reason.strip():
            faults.append(f"{declaration}[{key!r}] needs a reason in words")
    return faults


def check_handle(backend: type[Backend], handle: object) -> None:
    """Say what is wrong with what `connect` returned.

    Raises:
        AdmissionError: a core method is missing.
    """
    missing = [name for name in CORE_METHODS if not callable(getattr(handle, name, None))]
    if missing:
        raise AdmissionError(
            f"{_name(backend)}.connect returned {type(handle).__name__!r}, which has no "
            f"{', '.join(missing)}; it must return an EventStore"
        )


def check_address(backend: type[Backend], address: object) -> str:
    """Return the address if it can be handed to another process.

    Raises:
        AdmissionError: it is no text.
    """
    if not isinstance(address, str) or not address:
        raise AdmissionError(
            f"{_name(backend)}.create returned {address!r:.80}; it must return the storage's "
            "address as a str, so that another process can connect to it"
        )
    return address


def _name(backend: type) -> str:
    return f"{backend.__module__}.{backend.__qualname__}"
