"""The command line: `loom-conformance COMMAND …`.

Exit codes, of every command:

- 0: the backend conforms, in all that was asked and but for what it lists in `known_failing`;
- 1: it does not;
- 2: the command was given something that it does not understand;
- 3: the command could not do its work, so nothing is known.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Final, Protocol, cast

CONFORMS: Final = 0
DOES_NOT_CONFORM: Final = 1
USAGE: Final = 2
COULD_NOT_RUN: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143


class Module(Protocol):
    """What the module of a command has."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do the work; returns the exit code."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: a module of this package, loaded when it is used."""

    name: str
    module: str
    text: str

    def load(self) -> Module:
        """The command's module."""
        return cast(Module, importlib.import_module(f"{__name__}.{self.module}"))


COMMANDS: Final[tuple[Command, ...]] = (
    Command("check", "check", "test a backend against every rule of the contract"),
    Command("rules", "rules", "list the rules, or explain one"),
    Command("backends", "backends", "list the reference backends and what they need"),
    Command("postgres", "postgres", "say which Postgres the kit finds, or what to install"),
    Command("races", "races", "list the named races, and what must lose each"),
    Command("race", "race", "explore every schedule of a race on a backend"),
    Command("replay", "replay", "run the one schedule of a race that a token stands for"),
    Command("judge", "judge", "give a verdict on recorded histories"),
    Command("soak", "soak", "put a backend under load and faults for some minutes"),
    Command("init", "init", "write a backend to start from, and its test file"),
    Command("report", "report", "show JSON reports side by side, as a page or in other forms"),
    Command("diff", "diff", "say what got worse and what got better between two reports"),
    Command("verify", "verify", "run again what a certificate claims"),
)

EPILOG: Final = """\
exit codes:
  0  the backend conforms, in all that was asked
  1  it does not
  2  the command line is wrong
  3  the work could not be done, so nothing is known
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    given, rest = _split(given)
    parser, parsers = _parser(given)
    options = parser.parse_args(given)
    if options.command is None:
        parser.print_help()
        return USAGE
    options.rest = rest
    command = next(one for one in COMMANDS if one.name == options.command)
    if rest and command.name != "check":
        parsers[command.name].error("only check passes arguments on after --")
    try:
        return command.load().run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone; what is left of it goes nowhere, at exit too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT_RUN


def _split(given: list[str]) -> tuple[list[str], list[str]]:
    """The command's own arguments, and those after `--`."""
    if "--" not in given:
        return given, []
    place = given.index("--")
    return given[:place], given[place + 1 :]


def _parser(
    given: Sequence[str],
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog="loom-conformance",
        description="Find out whether an event store keeps the promises that Loom rests on.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"loom-conformance {metadata.version('loom-conformance')}",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers = {}
    for command in COMMANDS:
        one = commands.add_parser(
            command.name,
            help=command.text,
            description=f"{command.text[0].upper()}{command.text[1:]}.",
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.name in given:
            command.load().configure(one)
        parsers[command.name] = one
    return parser, parsers
