"""The report's forms: page, Markdown, badge, certificate; each with values that mean harm."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from report_samples import CALLS, HOSTILE, TRACE, failing, hostile, report

from loom_conformance.contract.rules import PROFILES, rules
from loom_conformance.report.badge import badge, value_of
from loom_conformance.report.certificate_file import (
    certificate,
    certificate_schema,
    read_certificate,
)
from loom_conformance.report.document import DocumentError, read, schema
from loom_conformance.report.files import append_summary, check_path, write_reports
from loom_conformance.report.html import render
from loom_conformance.report.html.diagrams import bars, lanes, told_lanes
from loom_conformance.report.markdown import markdown
from loom_conformance.report.sight import sight


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.tags if "id" in attributes]


def links(page: Page) -> Iterator[str]:
    for attributes in page.named("a"):
        href = str(attributes["href"])
        assert href.startswith("#")
        yield href[1:]


@pytest.mark.parametrize("make", [report, failing, hostile])
def test_reports_made_here_follow_the_schema(make: object) -> None:
    assert callable(make)
    jsonschema.Draft202012Validator(schema()).validate(json.loads(json.dumps(make())))


def test_the_page_has_every_rule_and_every_failure() -> None:
    page = Page(render([report(), failing()]))
    ids = page.ids()
    assert len(ids) == len(set(ids))
    assert {f"rule-{rule}" for rule in rules()} <= set(ids)
    assert {"failure-1-SEQ-1", "failure-1-READ-3", "failure-1-FENCE-13"} <= set(ids)
    assert not [one for one in ids if one.startswith("failure-0-")]
    assert set(links(page)) <= set(ids)
    text = " ".join(page.text)
    assert "memory conforms" in text
    assert "wrong does not conform" in text


def test_each_failure_links_its_rule_and_the_documentation_where_that_is_known() -> None:
    page = Page(render([failing()]))
    hrefs = [attributes["href"] for attributes in page.named("a")]
    assert {"#rule-SEQ-1", "#rule-SEQ-4", "#rule-READ-3"} <= set(hrefs)
    page = Page(render([failing()], docs="https://docs.example/kit/"))
    hrefs = [attributes["href"] for attributes in page.named("a")]
    assert hrefs.count("https://docs.example/kit/rules/#seq-4") == 2
    assert hrefs.count("https://docs.example/kit/rules/#seq-2") == 1


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    page = Page(render([failing()]))
    assert page.named("link") == page.named("img") == page.named("iframe") == []
    assert all("src" not in attributes for attributes in page.named("script"))
    assert "http://" not in render([failing()]).replace("http://www.w3.org", "")
    (policy,) = [one for one in page.named("meta") if "http-equiv" in one]
    assert "default-src 'none'" in str(policy["content"])


def test_hostile_values_are_text_on_the_page() -> None:
    text = render([hostile()])
    text.encode("utf-8")
    page = Page(text)
    assert len(page.named("script")) == 1
    assert page.named("img") == []
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert "\x1b" not in text
    assert "49" not in "".join(page.text).partition("evil")[2][:40]
    assert "<img src=x onerror=alert(2)>" in "".join(page.text)


def test_the_page_of_three_full_reports_is_small() -> None:
    assert len(render([failing("one"), failing("two"), failing("three")]).encode()) < 2_000_000


def test_a_page_needs_a_report() -> None:
    with pytest.raises(ValueError, match="at least one report"):
        render([])


def test_reports_of_different_rule_sets_are_said_to_be() -> None:
    other = {**report(), "rule_set_digest": "0" * 16}
    other["rules"] = other["rules"][1:]
    text = render([report(), other])
    assert "made with different rule sets" in text
    assert "not in its rule set" in text
    assert "made with different rule sets" not in render([report(), report()])


# --- pictures ---------------------------------------------------------------------------------


def test_lanes_show_every_step_and_mark_the_wrong_one() -> None:
    root = ElementTree.fromstring(lanes(TRACE["nodes"], TRACE["rows"], "SEQ-4"))
    shown = [element.text or "" for element in root.iter("text")]
    assert "node A" in shown
    assert [one for one in shown if one.isdigit()] == ["1", "2", "3", "4"]
    assert any("the slot was taken at step 3" in one for one in shown)
    assert [element.get("class") for element in root.iter("circle")].count("dot wrong") == 1


def test_the_last_step_is_marked_where_none_says_that_it_is_wrong() -> None:
    rows = [{**row, "wrong": False, "remark": ""} for row in TRACE["rows"]]
    classes = [
        element.get("class")
        for element in ElementTree.fromstring(lanes(TRACE["nodes"], rows, "SEQ-4")).iter("circle")
    ]
    assert classes == [*["dot"] * (len(rows) - 1), "dot wrong"]
    rows[1]["remark"] = "once more"
    classes = [
        element.get("class")
        for element in ElementTree.fromstring(lanes(TRACE["nodes"], rows, "SEQ-4")).iter("circle")
    ]
    assert classes.index("dot wrong") == 1


def test_a_picture_cuts_a_call_and_not_what_came_of_it() -> None:
    text = (
        "append('run-000001' at 0, id 'run-000001-rival-4') → DuplicateSequenceError: it is taken"
    )
    nodes = [str(number) for number in range(4)]
    rows = [
        {"step": 1, "node": node, "text": text, "remark": "", "wrong": False} for node in range(4)
    ]
    root = ElementTree.fromstring(lanes(nodes, rows, "SEQ-4"))
    calls = [element for element in root.iter("text") if "call" in str(element.get("class"))]
    shown = ["".join(element.itertext()).removeprefix(text) for element in calls]
    assert shown[0] == "→ DuplicateSequenceError"
    assert shown[3].startswith("append('run")
    assert shown[3].endswith(" → DuplicateSequenceError")
    assert int(str(root.get("width"))) <= 1150


def test_the_failure_that_is_drawn_stands_first() -> None:
    report_ = failing()
    rule = next(one for one in report_["rules"] if one["id"] == "SEQ-4")
    plain = {**rule["failures"][0], "picture": None, "trace": None, "path": "batch-last"}
    rule["failures"].insert(0, plain)
    text = render([report_])
    start = text.index('id="failure-0-SEQ-4"')
    assert text.index("<svg", start) < text.index("The same on", start)


def test_bars_show_what_is_certain_and_what_is_stuck() -> None:
    root = ElementTree.fromstring(bars(CALLS["bars"], "BATCH-9"))
    classes = [element.get("class") for element in root.iter("rect")]
    assert classes == ["bar", "bar wrong"]


def test_long_text_is_cut_and_stands_whole_in_a_title() -> None:
    rows = [{"step": 1, "node": 0, "text": "x" * 500, "remark": "", "wrong": False}]
    root = ElementTree.fromstring(lanes(["A", "B"], rows, "name"))
    call = next(one for one in root.iter("text") if one.get("class") == "call wrong")
    title = call.find("title")
    assert title is not None
    assert title.text == "x" * 500
    assert len(title.tail or "") < 100


def test_lanes_are_made_of_steps_where_there_is_no_picture() -> None:
    nodes, rows = told_lanes(["A.append('a.b(c)') → ok", "fresh.read_from('x') → []", "odd"])
    assert nodes == ["A", "fresh", ""]
    assert [row["node"] for row in rows] == [0, 1, 2]
    assert rows[0]["text"] == "append('a.b(c)') → ok"


# --- Markdown and badge -----------------------------------------------------------------------


def test_markdown_says_what_was_proven_and_how_much_it_sees() -> None:
    text = markdown([report(), failing()])
    assert text.startswith("## ✅ memory: conforms\n")
    assert "## ❌ wrong: does not conform" in text
    for profile in PROFILES:
        assert f"| {profile} | **proven** (" in text
    assert "<b>SEQ-1</b> failed" in text


def test_hostile_values_are_text_in_markdown() -> None:
    text = markdown([hostile()])
    text.encode("utf-8")
    outside = "".join(part for place, part in enumerate(text.split("```")) if place % 2 == 0)
    assert "<script" not in outside
    assert "<img" not in outside
    for line in outside.splitlines():
        if line.startswith("| "):
            assert line.replace("\\|", "").count("|") == 5


def test_a_fence_is_longer_than_any_run_of_backticks() -> None:
    from report_samples import broken

    text = markdown([report(SEQ_1=broken("SEQ-1", got="```` end"))])
    assert "\n`````text\n" in text


def test_the_badge_never_says_more_than_was_proven() -> None:
    assert value_of(report()) == f"conforms: {len(PROFILES)} of {len(PROFILES)} profiles"
    assert value_of(failing()) == "does not conform"
    for make in (report(), failing(), hostile()):
        root = ElementTree.fromstring(badge(make).encode("utf-8"))
        assert root.tag.endswith("svg")
        assert len(list(root)) == 4


# --- certificates -----------------------------------------------------------------------------


def test_a_certificate_follows_its_schema() -> None:
    validator = jsonschema.Draft202012Validator(certificate_schema())
    for made in (report(), failing(), hostile()):
        validator.validate(json.loads(json.dumps(certificate(made))))


def test_a_certificate_says_how_much_the_kit_can_see() -> None:
    found = certificate(report())
    for profile in PROFILES:
        entry = found["profiles"][profile]
        assert entry["proven"] is True
        assert entry["tests_passed"] >= 1
        assert entry["wrong_stores_caught"] == sight()[profile].wrong_stores
        assert entry["blind_spots"]


def test_a_changed_certificate_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write_reports([failing()], [path])
    found = json.loads(path.read_text("utf-8"))
    assert read_certificate(path) == found
    found["verdict"] = "conforms"
    path.write_text(json.dumps(found), "utf-8")
    with pytest.raises(DocumentError, match="was changed after it was made"):
        read_certificate(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read"),
        ("{", "is no JSON"),
        ("[]", "is no"),
        ("{}", "is no"),
        (json.dumps({"rule_set_digest": "x", "format": 99}), "has format 99"),
    ],
)
def test_a_file_that_is_no_report_is_told_so(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "some.json"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(DocumentError, match=said):
        read(path)


# --- files ------------------------------------------------------------------------------------


def test_every_kind_is_written_by_its_name(tmp_path: Path) -> None:
    names = ("r.json", "r.html", "r.md", "r.svg", "certificate.json", "my.certificate.json")
    written = write_reports([report()], [tmp_path / name for name in names])
    assert [path.name for path in written] == list(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert read(tmp_path / "r.json")["backend"]["name"] == "memory"
    assert read_certificate(tmp_path / "my.certificate.json")["verdict"] == "conforms"


def test_of_several_backends_each_has_a_file_where_it_needs_one(tmp_path: Path) -> None:
    write_reports(
        [report("one"), report("a/b"), report("one")],
        [tmp_path / "r.json", tmp_path / "r.html", tmp_path / "my.certificate.json"],
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "my-a-b.certificate.json",
        "my-one-1.certificate.json",
        "my-one-2.certificate.json",
        "r-a-b.json",
        "r-one-1.json",
        "r-one-2.json",
        "r.html",
    ]


def test_a_path_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    assert check_path(tmp_path / "r.html") is None
    assert "must end in" in str(check_path(tmp_path / "r.pdf"))
    assert "there is no folder" in str(check_path(tmp_path / "no" / "r.html"))


def test_the_summary_of_a_ci_system_is_added_to(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n", "utf-8")
    append_summary(path, [report()])
    assert path.read_text("utf-8").startswith("before\n## ✅ memory: conforms\n")


def test_hostile_reports_are_written_whole(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("r.json", "r.html", "r.md", "r.svg")]
    for path in write_reports([hostile()], paths):
        assert path.read_text("utf-8")
    assert read(tmp_path / "r.json")["backend"]["name"] == f"evil {HOSTILE}"
