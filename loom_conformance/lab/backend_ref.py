"""A backend class as text that another process can load."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from ..backend import Backend


class UnreachableBackendError(ValueError):
    """A backend class cannot be loaded by another process; the message says what to do."""


@dataclass(frozen=True, slots=True)
class BackendRef:
    """Where a backend class is found: by module and name, else by file and name.

    The file serves classes of test modules and `conftest.py`, which another process cannot import
    by name.
    """

    module: str
    qualname: str
    file: str | None = None

    @classmethod
    def of(cls, backend: type[Backend]) -> Self:
        """The reference to a class.

        Raises:
            UnreachableBackendError: the class is local to a function.
        """
        if "<locals>" in backend.__qualname__:
            raise UnreachableBackendError(
                f"{backend.__qualname__} is defined inside a function, so a child process cannot "
                "load it; move the class to the top of a module"
            )
        module = sys.modules.get(backend.__module__)
        file = getattr(module, "__file__", None)
        return cls(backend.__module__, backend.__qualname__, file)

    def load(self) -> type[Backend]:
        """Find the class in this process.

        Raises:
            UnreachableBackendError: neither the module nor the file leads to the class.
        """
        tried = []
        for find in (self._by_name, self._by_file):
            try:
                found: Any = find()
                for name in self.qualname.split("."):
                    found = getattr(found, name)
            except (ImportError, AttributeError, OSError) as error:
                tried.append(f"{type(error).__name__}: {error}")
                continue
            if isinstance(found, type) and issubclass(found, Backend):
                return found
            tried.append(f"{found!r} is no Backend class")
        raise UnreachableBackendError(
            f"a child process cannot load {self.module}:{self.qualname}: {'; '.join(tried)}"
        )

    def to_json(self) -> dict[str, Any]:
        """The reference as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The reference that `to_json` described."""
        return cls(told["module"], told["qualname"], told.get("file"))

    def _by_name(self) -> ModuleType:
        if self.module == "__main__":
            raise ImportError("__main__ is another module in a child process")
        return importlib.import_module(self.module)

    def _by_file(self) -> ModuleType:
        if self.file is None:
            raise ImportError("the module has no file")
        path = Path(self.file)
        name = f"_loom_child_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
