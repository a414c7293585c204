"""Write the pages on the races: `python docs/generate/races.py`.

With `--check` nothing is written; the exit code is 1 when a page on disk is not what the races say.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from loom_backends.memory import MemoryBackend
from loom_conformance.races.pages import pages


def main() -> int:
    parser = argparse.ArgumentParser(prog="python docs/generate/races.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(__file__).resolve().parents[1],
        help="the folder of the pages",
    )
    options = parser.parse_args()
    stale = []
    for name, text in pages(MemoryBackend()).items():
        place = options.into / name
        if place.exists() and place.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not options.check:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")
    for name in stale:
        print(
            f"{name} is not what the races say; run this without --check" if options.check else name
        )
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
