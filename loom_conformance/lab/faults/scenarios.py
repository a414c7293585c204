"""Everything that can be done to a backend's storage and its connections, one after another."""

from __future__ import annotations

from ...backend import Backend
from .bench import Bench
from .connections import observe_connections
from .files import observe_files
from .observation import Observations


async def observe(backend: Backend, patience: float) -> Observations:
    """Harm a storage of its own in every way that its address allows.

    Args:
        backend: a started backend.
        patience: seconds that one call may take.

    Raises:
        Exception: what the backend raises where nothing is wrong with the storage.
    """
    found = Observations()
    address = await backend.create()
    try:
        bench = Bench(backend, address, patience)
        store = await bench.connect()
        try:
            for write in bench.writes(store):
                await bench.make(store, write)
        finally:
            await bench.close(store)
        await observe_connections(bench, found)
        await observe_files(bench, found)
    finally:
        await backend.destroy(address)
    return found
