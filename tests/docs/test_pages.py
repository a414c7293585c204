from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_support import ROOT

from loom_conformance import spi
from loom_conformance.backend import Backend
from loom_conformance.cli import COMMANDS, main
from loom_conformance.contract.rules import rules
from loom_conformance.plugin import OPTIONS
from loom_conformance.report.certificate import Verdict
from loom_conformance.report.outcomes import Outcome
from loom_conformance.report.subject import DECLARATIONS, HOOKS
from loom_conformance.spi import ABILITIES, EventEnvelope, EventStoreError

DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DOCS / "generate"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# --- generated pages --------------------------------------------------------------------------


def test_generated_pages_are_what_the_code_says() -> None:
    done = generate("--check")
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["contract.md", "rules.md"])
def test_a_page_that_differs_by_a_word_is_told(tmp_path: Path, name: str) -> None:
    for each in ("contract.md", "rules.md"):
        shutil.copy(DOCS / each, tmp_path)
    assert generate("--check", "--into", str(tmp_path)).returncode == 0
    place = tmp_path / name
    changed = place.read_text("utf-8").replace("refused", "taken", 1)
    place.write_text(changed, "utf-8")
    done = generate("--check", "--into", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.startswith(name)
    assert place.read_text("utf-8") == changed
    assert generate("--into", str(tmp_path)).returncode == 0
    assert place.read_text("utf-8") == page(name)


def test_every_rule_stands_on_both_pages_with_its_promise() -> None:
    contract, single = page("contract.md"), page("rules.md")
    for rule in rules().values():
        assert f"| [{rule.id}](rules.md#{rule.id.lower()}) | " in contract
        assert rule.promise.replace("|", "\\|") in contract
        assert f"### {rule.id} {{ #{rule.id.lower()} }}" in single
        assert rule.why in single


# --- hand-written pages that follow the code --------------------------------------------------


def test_the_contract_page_names_every_part_of_the_spi() -> None:
    text = page("contract.md")
    names = [field.name for field in dataclasses.fields(EventEnvelope)]
    names += ABILITIES.values()
    names += [
        name
        for name, value in vars(spi).items()
        if isinstance(value, type) and issubclass(value, EventStoreError)
    ]
    names += ["claim", "renew", "release"]
    missing = [name for name in names if f"| `{name}" not in text]
    assert not missing


def test_every_declaration_and_hook_is_explained() -> None:
    text = page("declarations.md")
    assert not [name for name in ("name", *DECLARATIONS) if f"| `{name}` |" not in text]
    assert not [name for name in HOOKS if f"def {name}(" not in text]
    for name in DECLARATIONS:
        if hasattr(Backend, name):
            default = getattr(Backend, name)
            told = f'"{default}"' if isinstance(default, str) else str(default)
            assert f"| `{name}` | `{told}` |" in text


def test_every_outcome_and_verdict_is_explained() -> None:
    text = page("report.md")
    assert not [one for one in (*Outcome, *Verdict) if f"| {one} |" not in text]


def test_every_command_and_option_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = page("commands.md")
    for name in OPTIONS:
        assert f"| `--loom-{name} " in text
    sections = {
        heading.split()[1]: body
        for heading, body in re.findall(
            r"## `(loom-conformance [^`]+)`\n(.*?)(?=\n## |\Z)", text, re.S
        )
    }
    assert sections.keys() == {command.name for command in COMMANDS}
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command.name, "--help"])
        found = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
        missing = [option for option in sorted(found) if option not in sections[command.name]]
        assert not missing, f"{command.name}: {missing}"


# --- the site ---------------------------------------------------------------------------------


def test_rooms_use_each_other_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "generate"))
    from rooms import layers, read_uses

    uses = read_uses()
    assert layers(uses)
    assert uses["spi"] == frozenset()
    assert uses["backend"] == {"spi"}
    assert uses["loom_backends"] <= {"spi", "backend"}
    assert uses["decorators"] <= {"spi", "clock"}
    assert not uses["interleave"] & {"suites", "races", "report", "plugin", "cli"}
    assert "suites" not in uses["plugin"]
    for below in ("contract", "lab", "interleave", "decorators", "runtime"):
        assert not uses[below] & {"suites", "races", "plugin", "cli"}


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    built = (tmp_path / "site" / "architecture" / "index.html").read_text("utf-8")
    assert 'class="rooms"' in built
    assert "{{ " not in built
    rule = (tmp_path / "site" / "rules" / "index.html").read_text("utf-8")
    assert 'id="fence-8"' in rule
    gallery = tmp_path / "site" / "gallery"
    conforming, failing, compared = (
        (gallery / f"{name}.html").read_text("utf-8")
        for name in ("conforming", "failing", "compared")
    )
    assert "memory conforms: " in conforming
    assert "hasty does not conform: SEQ-4" in failing
    assert "<svg" in failing
    assert 'href="../rules/#seq-4"' in failing
    assert all(f">{name}</h2>" in compared for name in ("memory", "sqlite"))
    assert "{{ " not in (gallery / "index.html").read_text("utf-8")


def test_the_workflow_is_one() -> None:
    yaml = pytest.importorskip("yaml")
    from docs_support import blocks_of

    (block,) = [one for one in blocks_of(DOCS / "ci.md") if one.language == "yaml"]
    workflow = yaml.safe_load(block.body)
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[0].startswith("pip install")
    words = commands[1].split()
    assert words[:2] == ["loom-conformance", "check"]
    options = {word for word in words if word.startswith("--")}
    assert not [option for option in options if f"| `{option} " not in page("commands.md")]
