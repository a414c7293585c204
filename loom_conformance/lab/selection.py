"""Which backend and which settings the current run uses, and how a backend is named in words.

The pytest plugin chooses; the suites ask. So neither needs to know the other.
"""

from __future__ import annotations

import difflib
import importlib
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..backend import Backend
from .admission import AdmissionError, check_declarations
from .settings import Settings

SHORT_NAMES: Final = {
    "memory": "loom_backends.memory:MemoryBackend",
    "sqlite": "loom_backends.sqlite:SQLiteBackend",
    "postgres": "loom_backends.postgres:PostgresBackend",
}
"""The reference backends, by the names that the command line and the plugin accept."""


class SelectionError(ValueError):
    """A backend was named that cannot be found or cannot be tested."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a run was asked to do.

    Attributes:
        backend: the backend that `--loom-backend` names, or `None` where test files bring theirs.
        settings: the deadline, the seed and the depth.
    """

    backend: type[Backend] | None = None
    settings: Settings = field(default_factory=Settings)


_runs: list[Selection] = []


def current() -> Selection:
    """The selection of the run that is going on; one with the default settings outside of any."""
    if not _runs:
        _runs.append(Selection())
    return _runs[-1]


def enter(selection: Selection) -> None:
    """Make a selection the current one, until `leave`; runs may be nested in one process."""
    _runs.append(selection)


def leave(selection: Selection) -> None:
    """Go back to the selection before this one."""
    if selection in _runs:
        _runs.remove(selection)


def select(spec: str) -> type[Backend]:
    """Find the backend that `memory`, `sqlite`, `postgres` or `package.module:Class` names.

    Raises:
        SelectionError: there is no such module or attribute, the module cannot be imported, or
            what was found is no backend that can be tested. The message says which and what to do.
    """
    module_name, attribute = _split(spec)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise SelectionError(_missing_module(spec, module_name, error)) from error
    except (Exception, SystemExit) as error:
        raise SelectionError(
            f"cannot import {module_name!r} for the backend {spec!r}: "
            f"{type(error).__name__}: {error}{_where(error)}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise SelectionError(_missing_attribute(spec, found, name))
        found = getattr(found, name)
    try:
        return check_declarations(found)
    except AdmissionError as error:
        raise SelectionError(f"{spec}: {error}") from error


def _split(spec: str) -> tuple[str, str]:
    full = SHORT_NAMES.get(spec, spec)
    module_name, colon, attribute = full.partition(":")
    if module_name.endswith(".py"):
        file = Path(module_name)
        start = f", and start from {str(file.parent)!r}" if file.parent != Path() else ""
        raise SelectionError(
            f"{module_name!r} is a file, where a module is wanted\n"
            f"Give it as {file.stem}:{attribute.strip(':') or 'CLASS'}{start}"
        )
    if colon and module_name and attribute and not module_name.startswith("."):
        return module_name, attribute
    near = difflib.get_close_matches(spec, SHORT_NAMES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise SelectionError(
        f"{spec!r} names no backend{hint}\n"
        f"Give one of {', '.join(SHORT_NAMES)}, or MODULE:CLASS such as "
        "mypackage.testing:MyBackend"
    )


def _missing_module(spec: str, module_name: str, error: ModuleNotFoundError) -> str:
    missing = error.name or module_name
    if module_name == missing or module_name.startswith(f"{missing}."):
        return (
            f"there is no module {missing!r} (for the backend {spec!r})\n"
            "Is the name right, is the package installed in this environment, and is this the "
            "folder to start from?"
        )
    extra = {"aiosqlite": "sqlite", "asyncpg": "postgres"}.get(missing)
    install = f"pip install 'loom-conformance[{extra}]'" if extra else f"install {missing!r}"
    return f"the backend {spec!r} needs the module {missing!r}, which is not installed: {install}"


def _missing_attribute(spec: str, owner: object, name: str) -> str:
    where = getattr(owner, "__name__", repr(owner))
    classes = sorted(
        key
        for key, value in getattr(owner, "__dict__", {}).items()
        if isinstance(value, type) and issubclass(value, Backend) and value is not Backend
    )
    near = difflib.get_close_matches(name, classes, n=1)
    hint = ""
    if near:
        hint = f"; did you mean {near[0]!r}?"
    elif classes:
        hint = f"; its backends are {', '.join(classes)}"
    return f"{where!r} has no {name!r} (for the backend {spec!r}){hint}"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f"\n  at {last.filename}, line {last.lineno}, in {last.name}"
