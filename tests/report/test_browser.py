"""The page in a real browser: it shows, filters, opens, follows its links, and runs nothing else.

Screenshots go to the folder that `LOOM_SCREENSHOTS` names, where it is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Dialog, Page, sync_playwright
from report_samples import failing, hostile, report

from loom_conformance.contract.rules import rules
from loom_conformance.report.html import render

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="there is no Chromium here"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "install Chromium: apt install chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    pages = {
        "one": [failing()],
        "three": [report("memory"), failing("sqlite"), report("postgres")],
        "hostile": [hostile(), report()],
    }
    for name, reports in pages.items():
        (made / f"{name}.html").write_text(render(reports), "utf-8")
    return made


class Opened:
    """A page with what the browser complained about."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def opened(browser: Browser, path: Path, width: int = 1280, scheme: Any = "light") -> Opened:
    return Opened(
        browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme), path
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", ["one", "three", "hostile"])
def test_it_shows_without_complaint_or_barrier(
    browser: Browser, folder: Path, name: str, width: int, scheme: str
) -> None:
    found = opened(browser, folder / f"{name}.html", width, scheme)
    page = found.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # What is out of sight is not drawn, and so would not be looked at.
    page.add_style_tag(content=".failure { content-visibility: visible !important }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    grave = [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in Axe().run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert grave == []
    assert found.complaints == []
    assert found.asked == [(folder / f"{name}.html").as_uri()]
    screenshots = os.environ.get("LOOM_SCREENSHOTS")
    if screenshots:
        page.screenshot(path=Path(screenshots, f"{name}-{width}-{scheme}.png"), full_page=True)
    page.close()


def shown_rules(page: Page) -> int:
    return page.locator("tr.rule:visible").count()


def test_it_filters(browser: Browser, folder: Path) -> None:
    page = opened(browser, folder / "three.html").page
    assert shown_rules(page) == len(rules())
    page.select_option("#profile-filter", "fencing")
    assert shown_rules(page) == sum(rule.profile == "fencing" for rule in rules().values())
    page.select_option("#profile-filter", "")
    page.fill("#text-filter", "seq-4")
    assert shown_rules(page) == 1
    assert page.inner_text("#shown") == f"1 of {len(rules())} rules shown"
    page.fill("#text-filter", "no such rule")
    assert page.locator("#nothing").is_visible()
    page.click("button[type=reset]")
    page.wait_for_function(
        "document.getElementById('nothing').hidden && !document.getElementById('text-filter').value"
    )
    assert shown_rules(page) == len(rules())
    for box in page.locator("input[name=outcome]").all():
        box.set_checked(box.get_attribute("value") == "inconclusive")
    assert shown_rules(page) == 1
    assert page.locator("article.failure:visible").count() == 1
    page.close()


def test_rules_open_and_close_by_the_keyboard(browser: Browser, folder: Path) -> None:
    page = opened(browser, folder / "one.html").page
    button = page.locator("tr.rule button", has_text="SEQ-1").first
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    detail = page.locator("#rule-SEQ-1")
    assert detail.is_visible()
    assert rules()["SEQ-1"].why.replace("`", "")[:40] in detail.inner_text()
    page.keyboard.press("Space")
    assert detail.is_hidden()
    page.close()


def test_links_lead_to_the_failure_and_back_to_a_rule(browser: Browser, folder: Path) -> None:
    page = opened(browser, folder / "three.html").page
    page.get_by_label("why SEQ-4 is failed on sqlite").click()
    assert page.url.endswith("#failure-1-SEQ-4")
    article = page.locator("#failure-1-SEQ-4")
    assert article.is_visible()
    assert "the slot was taken at step 3" in (article.locator("svg").text_content() or "")
    page.goto((folder / "three.html").as_uri() + "#rule-ID-2")
    page.reload()
    assert page.locator("#rule-ID-2").is_visible()
    page.close()


def test_it_prints(browser: Browser, folder: Path) -> None:
    page = opened(browser, folder / "three.html").page
    page.emulate_media(media="print")
    assert page.locator("#filters").is_hidden()
    assert len(page.pdf()) > 10_000
    page.close()


def test_without_scripts_everything_important_is_there(browser: Browser, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "one.html").as_uri())
    assert shown_rules(page) == len(rules())
    assert page.locator("article.failure:visible").count() == 7
    context.close()
