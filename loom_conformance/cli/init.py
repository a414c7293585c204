"""`loom-conformance init`: a backend to start from, and the test file for it."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
from importlib.resources import files
from pathlib import Path

from . import CONFORMS, COULD_NOT_RUN, USAGE
from .console import say, stderr, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `init`."""
    parser.add_argument(
        "name", nargs="?", default="mystore", help="the module to write (default: mystore)"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(), metavar="PATH", help="where (default: here)"
    )


def run(options: argparse.Namespace) -> int:
    """Write two files, and overwrite none."""
    name: str = options.name
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or keyword.iskeyword(name):
        say(stderr(), [f"{name!r} is no name for a module; take one such as mystore"])
        return USAGE
    if not options.folder.is_dir():
        say(stderr(), [f"there is no folder {str(options.folder)!r}"])
        return USAGE
    made = {
        options.folder / f"{name}.py": _template("store.py.txt"),
        options.folder / f"test_{name}.py": _template("test_store.py.txt"),
    }
    there = [str(path) for path in made if path.exists()]
    if there:
        say(stderr(), [f"{path} is there already, and is left as it is" for path in there])
        return USAGE
    if importlib.util.find_spec(name) is not None:
        say(stderr(), [f"there is a module {name!r} already, which yours would hide; take another"])
        return USAGE
    try:
        for path, text in made.items():
            path.write_text(text.replace("{name}", name), "utf-8")
    except OSError as error:
        say(stderr(), [f"cannot write {error.filename}: {error.strerror}"])
        return COULD_NOT_RUN
    say(
        stdout(),
        [
            *(f"wrote {path}" for path in made),
            "",
            "See what it keeps, and what it does not yet:",
            f"  loom-conformance check {name}:MyBackend",
            "Or with the rest of your tests:",
            f"  pytest test_{name}.py",
        ],
    )
    return CONFORMS


def _template(name: str) -> str:
    return files(__package__).joinpath("templates", name).read_text("utf-8")
