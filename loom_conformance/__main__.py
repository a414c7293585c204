"""`python -m loom_conformance` is `loom-conformance`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
