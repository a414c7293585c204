"""`loom-conformance verify certificate.json`: run again what a certificate claims."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..contract.rules import digest
from ..report.certificate_file import read_certificate
from ..report.difference import rank
from ..report.document import DocumentError, read
from ..report.text import wrapped
from . import CONFORMS, COULD_NOT_RUN, DOES_NOT_CONFORM, USAGE
from .console import say, stderr, stdout


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    parser.add_argument("certificate", type=Path, help="a certificate.json")
    parser.add_argument(
        "--backend",
        metavar="MODULE:CLASS",
        help="run this backend instead of the one that the certificate names",
    )


def run(options: argparse.Namespace) -> int:
    """Run the check again; exit code 1 where it does not bear the certificate out."""
    try:
        claimed = read_certificate(options.certificate)
    except DocumentError as error:
        say(stderr(), [str(error)])
        return USAGE
    if claimed["rule_set_digest"] != digest():
        say(
            stderr(),
            wrapped(
                f"the certificate was made with rule set {claimed['rule_set_digest']} (kit "
                f"{claimed['kit_version']}); this kit has {digest()}: install that version to "
                "verify it"
            ),
        )
        return COULD_NOT_RUN
    with tempfile.TemporaryDirectory(prefix="loom-verify-") as folder:
        report = Path(folder, "report.json")
        code = _check(claimed, options.backend, report)
        if not report.exists():
            return code if code in (USAGE, COULD_NOT_RUN) else COULD_NOT_RUN
        found = read(report)
    unfounded = {
        rule["id"]: rule
        for rule in found["rules"]
        if rank(rule["outcome"]) > rank(claimed["rules"].get(rule["id"]))
    }
    lines = ["", f"certificate of {claimed['started_at']}: {claimed['verdict']}"]
    lines.append(f"this run: {found['certificate']['verdict']}")
    for rule_id, rule in unfounded.items():
        lines += wrapped(
            f"claimed {claimed['rules'].get(rule_id, 'nothing')}, found {rule['outcome']}",
            f"  {rule_id:<11}",
        )
    borne_out = not unfounded and found["certificate"]["verdict"] == claimed["verdict"]
    lines.append(
        "the certificate is borne out" if borne_out else "the certificate is NOT borne out"
    )
    say(stdout(), lines)
    return CONFORMS if borne_out else DOES_NOT_CONFORM


def _check(claimed: Mapping[str, Any], backend: str | None, report: Path) -> int:
    """Check the backend as the certificate says that it was checked."""
    from . import main

    words = ["check", backend or claimed["backend"]["spec"], "--seed", str(claimed["seed"])]
    words += ["--depth", claimed["depth"], "--deadline", json.dumps(claimed["deadline_s"])]
    for name, key in (("--profile", "profiles"), ("--rule", "rules"), ("--path", "paths")):
        for value in claimed["selection"][key]:
            words += [name, value]
    sys.stdout.flush()
    return main([*words, "--report", str(report)])
