"""The certificate as a file: what a report proves, without the report's details."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

from .document import Document, DocumentError
from .sight import sight

FORMAT: Final = 1
KIND: Final = "loom-conformance certificate"


@cache
def certificate_schema() -> dict[str, Any]:
    """The JSON Schema that every certificate follows."""
    text = files(__package__).joinpath("certificate.schema.json").read_text("utf-8")
    return cast("dict[str, Any]", json.loads(text))


def certificate(report: Document) -> dict[str, Any]:
    """What a report proves and what it does not, with how much the kit can see."""
    said = report["certificate"]
    profiles = {}
    for entry in report["profiles"]:
        name = entry["profile"]
        seen = sight().get(name)
        profiles[name] = {
            "proven": name in said["proven"],
            "why_not": said["not_proven"].get(name, ""),
            "tests_passed": sum(
                test["outcome"] == "passed"
                for rule in report["rules"]
                if rule["profile"] == name
                for test in rule["tests"]
            ),
            "evidence": entry["evidence"],
            "wrong_stores_caught": seen.wrong_stores if seen else 0,
            "blind_spots": list(seen.blind_spots) if seen else [],
        }
    found = {
        "kind": KIND,
        "format": FORMAT,
        **{
            key: report[key]
            for key in (
                "kit_version",
                "rule_set_digest",
                "backend",
                "declarations",
                "python",
                "platform",
                "seed",
                "depth",
                "deadline_s",
                "started_at",
                "duration_s",
                "selection",
            )
        },
        "verdict": said["verdict"],
        "line": said["line"],
        "limits": said["limits"],
        "evidence": said["evidence"],
        "profiles": profiles,
        "rules": {rule["id"]: rule["outcome"] for rule in report["rules"]},
    }
    return {**found, "seal": seal(found)}


def seal(found: dict[str, Any]) -> str:
    """A digest of a certificate's content: it shows a change, and proves no origin."""
    rest = {key: value for key, value in found.items() if key != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_certificate(path: Path) -> dict[str, Any]:
    """Read a certificate.

    Raises:
        DocumentError: there is no such file, it is no certificate, or it was changed.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DocumentError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise DocumentError(f"{path} is no certificate of loom-conformance")
    if found.get("format") != FORMAT:
        raise DocumentError(
            f"{path} has format {found.get('format')!r}; this version reads format {FORMAT}"
        )
    if found.get("seal") != seal(found):
        raise DocumentError(f"{path} was changed after it was made: its seal does not fit")
    return found
