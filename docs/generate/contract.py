"""The contract page and the page of single rules, from the kit's own data."""

from __future__ import annotations

from typing import Final

from loom_conformance import spi
from loom_conformance.contract.rules import PROFILES, Rule, digest, rules, rules_of

TITLES: Final = {
    "core": "core",
    "batch": "batch",
    "range": "range",
    "fencing": "fencing",
    "durability": "durability (backends that outlive a process)",
    "faults": "faults (what the storage's address lets the kit do to it, and load from processes)",
    "coalescing": "coalescing (the kit's decorator, or the author's own)",
    "scoping": "scoping (decorators that rename executions, such as a tenant scope)",
    "leases": "leases (backends with `connect_leases`)",
    "races": "races (the runtime of ADR 0103 on the store under test, under every schedule)",
}
"""What stands over each profile; one without a title here has its name."""

LIMITS: Final = ("MAX_EXECUTION_ID", "MAX_ENVELOPE_ID", "MAX_KIND", "MAX_DEPTH")


def contract_page(template: str) -> str:
    """The contract page."""
    values = {name: str(getattr(spi, name)) for name in LIMITS}
    values["count"] = str(len(rules()))
    values["digest"] = digest()
    values["profiles"] = "\n\n".join(_profile(profile) for profile in PROFILES)
    return filled(template, values)


def rules_page(template: str) -> str:
    """The page with a section a rule; its anchors are the ids in lower case."""
    parts = []
    for profile in PROFILES:
        parts.append(f"## {_title(profile)}")
        parts += [_section(rule) for rule in rules_of(profile)]
    return filled(template, {"rules": "\n\n".join(parts)})


def filled(template: str, values: dict[str, str]) -> str:
    """The template with `{{ name }}` replaced.

    Raises:
        ValueError: a placeholder has no value, or a value no placeholder.
    """
    text = template
    for name, value in values.items():
        placeholder = f"{{{{ {name} }}}}"
        if placeholder not in template:
            raise ValueError(f"the template has no place for {name!r}")
        text = text.replace(placeholder, value)
    if "{{ " in text:
        raise ValueError(f"the template wants more: {text[text.index('{{ ') :][:40]!r}")
    return text


def _title(profile: str) -> str:
    title = TITLES.get(profile, profile)
    return title[0].upper() + title[1:]


def _profile(profile: str) -> str:
    rows = [f"| [{rule.id}]({_link(rule)}) | {_promise(rule)} |" for rule in rules_of(profile)]
    return "\n".join([f"### {_title(profile)}", "", "| id | promise |", "|---|---|", *rows])


def _link(rule: Rule) -> str:
    return f"rules.md#{rule.id.lower()}"


def _promise(rule: Rule) -> str:
    mark = "(SHOULD) " if rule.level == "SHOULD" else ""
    return f"{mark}{rule.promise}".replace("|", "\\|")


def _section(rule: Rule) -> str:
    causes = [f"- {cause}" for cause in rule.causes]
    return "\n".join(
        [
            f"### {rule.id} {{ #{rule.id.lower()} }}",
            "",
            f"**{rule.promise}** ({rule.level})",
            "",
            f"Why: {rule.why}",
            "",
            f"Source: {rule.source}.",
            "",
            "Usual causes:",
            "",
            *causes,
        ]
    )
