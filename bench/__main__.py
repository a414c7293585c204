"""`python -m bench`: measure, and write a table and a picture."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import platform
import sys
import time
from pathlib import Path
from typing import Final

from .pairs import Plan, Result
from .tables import as_markdown, as_row, draw

MODULES: Final = ("stores", "kit", "interleaving", "checker")


def main() -> int:
    """Run what was asked for."""
    there = [name for name in MODULES if importlib.util.find_spec(f"{__package__}.{name}")]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("modules", nargs="*", help=f"some of {', '.join(there)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a smoke run")
    parser.add_argument("--output", type=Path, help="a folder for the table and the picture")
    options = parser.parse_args()
    for name in options.modules:
        if name not in there:
            parser.error(f"there is no {name!r}: choose from {', '.join(there)}")
    plan = Plan(rounds=3, scale=0.2) if options.quick else Plan()
    for name in options.modules or there:
        started = time.perf_counter()
        results = asyncio.run(_gather(name, plan))
        machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        seconds = time.perf_counter() - started
        table = f"## {name}\n\n{machine}, {seconds:.0f} s\n\n{as_markdown(results)}"
        print(table, flush=True)
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
            (options.output / f"{name}.md").write_text(table)
            draw(results, options.output / f"{name}.svg")
    return 0


async def _gather(name: str, plan: Plan) -> list[Result]:
    module = importlib.import_module(f"{__package__}.{name}")
    results: list[Result] = []
    async for result in module.measure(plan):
        print(as_row(result), file=sys.stderr, flush=True)
        results.append(result)
    return results


if __name__ == "__main__":
    sys.exit(main())
