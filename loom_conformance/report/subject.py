"""What is under test: a backend, what it declares, and every test that it must answer for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Final

from ..backend import Backend
from .outcomes import Expected

DECLARATIONS: Final = (
    "envelope_ids",
    "outlives_process",
    "one_process_at_a_time",
    "sparse_sequences",
    "batch_scope",
    "max_batch",
    "sets_up_on_connect",
    "durability",
    "declined",
    "known_failing",
)
"""What a backend says of itself, in the order in which reports print it."""

HOOKS: Final = (
    "crash",
    "coalescing",
    "scoping",
    "connect_leases",
    "age_leases",
    "blocked",
)
"""The optional methods of a backend."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One backend as one composed class tests it.

    Attributes:
        key: the node id of the class.
        name: the backend's name.
        spec: `module:Class`, where the backend stands.
        build: the distribution and version that holds it, such as `"mystore 1.4.2"`, or `""`.
        declarations: what it declares, as JSON; `hooks` lists its optional methods.
        catalogue: every test that the kit has for it.
        overridden: the names of the kit's tests that the class replaces.
        command: the words that run this class again, without a rule.
        by_check: whether `command` takes the options of `loom-conformance check`.
    """

    key: str
    name: str
    spec: str
    build: str
    declarations: Mapping[str, Any]
    catalogue: tuple[Expected, ...]
    overridden: tuple[str, ...]
    command: tuple[str, ...]
    by_check: bool

    @property
    def known_failing(self) -> Mapping[str, str]:
        """The rules that the backend lists as known to fail, with the reasons."""
        found: Mapping[str, str] = self.declarations["known_failing"]
        return found

    def to_json(self) -> dict[str, Any]:
        """The subject as plain data, to cross a process border."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data["catalogue"] = [list(asdict(entry).values()) for entry in self.catalogue]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Subject:
        """The subject that `to_json` described."""
        return cls(
            **{
                **data,
                "catalogue": tuple(Expected(*entry) for entry in data["catalogue"]),
                "overridden": tuple(data["overridden"]),
                "command": tuple(data["command"]),
            }
        )


def describe(
    backend: type[Backend],
    *,
    key: str,
    catalogue: Iterable[Expected],
    overridden: Iterable[str] = (),
    command: Iterable[str],
    by_check: bool,
    spec: str = "",
) -> Subject:
    """Describe a backend whose declarations have been checked.

    `spec` is its name as the user gave it; by default where the class says that it stands.
    """
    declarations: dict[str, Any] = {}
    for name in DECLARATIONS:
        value = getattr(backend, name)
        declarations[name] = dict(value) if isinstance(value, Mapping) else value
    declarations["hooks"] = [name for name in HOOKS if callable(getattr(backend, name, None))]
    return Subject(
        key=key,
        name=backend.name,
        spec=spec or f"{backend.__module__}:{backend.__qualname__}",
        build=build_of(backend),
        declarations=declarations,
        catalogue=tuple(sorted(set(catalogue))),
        overridden=tuple(sorted(overridden)),
        command=tuple(command),
        by_check=by_check,
    )


def build_of(backend: type[Backend]) -> str:
    """The installed distribution that a backend comes from, with its version; `""` if none."""
    package = backend.__module__.partition(".")[0]
    module = sys.modules.get(package)
    for distribution in sorted(set(metadata.packages_distributions().get(package, ()))):
        return f"{distribution} {metadata.version(distribution)}"
    version = getattr(module, "__version__", None)
    return f"{package} {version}" if isinstance(version, str) else ""
