"""Write the pages that are generated from the code: `python docs/generate`.

With `--check` nothing is written; the exit code is 1 when a page on disk is not what the code says.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contract import contract_page, rules_page

HERE = Path(__file__).resolve().parent

PAGES = {
    "contract.md": contract_page,
    "rules.md": rules_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python docs/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("--into", type=Path, default=HERE.parent, help="the folder of the pages")
    options = parser.parse_args()
    stale = []
    for name, page in PAGES.items():
        text = page((HERE / "templates" / name).read_text("utf-8"))
        place = options.into / name
        if place.exists() and place.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not options.check:
            place.write_text(text, "utf-8")
    for name in stale:
        print(
            f"{name} is not what the code says; run python docs/generate" if options.check else name
        )
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
