"""The plugin in projects of every kind, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_projects import outcomes_of, report_of

MINE = """
from loom_backends.memory import MemoryBackend
from loom_conformance import conformance

TestMine = conformance(MemoryBackend)
"""

ASYNC_TEST = """
import pytest

{mark}
async def test_of_the_project_itself():
    pass
"""

RULES = ("--loom-rule", "SEQ-4,RANGE-2,COAL-2", "--loom-depth", "quick")


def run(
    folder: Path, *arguments: str, plugins: tuple[str, ...] = (), rules: tuple[str, ...] = RULES
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with the kit's plugin and these, and no others."""
    environment = dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    environment.pop("PYTEST_ADDOPTS", None)
    words = [sys.executable, "-m", "pytest", "-p", "loom_conformance.plugin"]
    for plugin in plugins:
        words += ["-p", plugin]
    return subprocess.run(
        [*words, *rules, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_mine.py").write_text(MINE, "utf-8")
    return tmp_path


def passed(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
    for word in ("warning", " failed", " error", "inconclusive"):
        assert word not in result.stdout.rpartition("certificate")[2], result.stdout


def test_a_project_with_no_other_plugin(project: Path) -> None:
    passed(run(project, "-W", "error"))


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_beside_pytest_asyncio(project: Path, mode: str) -> None:
    mark = "@pytest.mark.asyncio" if mode == "strict" else ""
    (project / "test_own.py").write_text(ASYNC_TEST.format(mark=mark), "utf-8")
    (project / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n", "utf-8"
    )
    passed(run(project, "-W", "error", plugins=("pytest_asyncio.plugin",)))


def test_beside_anyio(project: Path) -> None:
    (project / "test_own.py").write_text(ASYNC_TEST.format(mark="@pytest.mark.anyio"), "utf-8")
    (project / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n", "utf-8"
    )
    passed(run(project, "-W", "error", plugins=("anyio.pytest_plugin",)))


def test_beside_anyio_in_auto_mode(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\n", "utf-8")
    passed(run(project, "-W", "error", plugins=("anyio.pytest_plugin",)))


def test_beside_trio_in_trio_mode(project: Path) -> None:
    (project / "test_own.py").write_text(ASYNC_TEST.format(mark=""), "utf-8")
    (project / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n", "utf-8")
    passed(run(project, "-W", "error", plugins=("pytest_trio.plugin",)))


def test_beside_all_of_them_with_hypothesis(project: Path) -> None:
    plugins = (
        "pytest_asyncio.plugin",
        "anyio.pytest_plugin",
        "pytest_trio.plugin",
        "_hypothesis_pytestplugin",
    )
    (project / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n", "utf-8"
    )
    passed(run(project, "-W", "error", "-p", "no:randomly", plugins=plugins))


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
def test_in_every_import_mode(project: Path, mode: str) -> None:
    (project / "tests").mkdir()
    (project / "test_mine.py").rename(project / "tests" / "test_mine.py")
    passed(run(project, "-W", "error", f"--import-mode={mode}"))


def test_under_xdist_it_finds_the_same(project: Path) -> None:
    passed(run(project, "--loom-report", "alone.json"))
    one = report_of(project / "alone.json")
    same = ("--loom-report", "shared.json", "--loom-seed", str(one["seed"]))
    passed(run(project, "-n", "1", *same, plugins=("xdist",)))
    other = report_of(project / "shared.json")
    assert outcomes_of(one) == outcomes_of(other)
    for key in ("backend", "declarations", "certificate", "profiles", "seed", "selection"):
        assert one[key] == other[key]


def test_under_xdist_every_worker_has_the_seed_that_is_shown(project: Path) -> None:
    (project / "test_mine.py").write_text(
        "from loom_conformance.lab.selection import current\n\n\n"
        "def test_seed():\n    raise AssertionError(f'seed is {current().settings.seed} here')\n",
        "utf-8",
    )
    result = run(project, "-n", "1", "-k", "seed", plugins=("xdist",))
    shown = re.search(r"seed (\d+),", result.stdout)
    assert shown is not None
    assert f"seed is {shown[1]} here" in result.stdout


def test_a_worker_that_dies_leaves_an_error(project: Path) -> None:
    (project / "test_mine.py").write_text(
        "import os\n"
        + MINE.replace("TestMine = conformance(MemoryBackend)", "")
        + "class Deadly(MemoryBackend):\n"
        "    async def connect(self, address):\n"
        "        store = await super().connect(address)\n"
        "        store.acquire_fence = lambda *_: os._exit(1)\n"
        "        return store\n"
        "TestMine = conformance(Deadly)\n",
        "utf-8",
    )
    result = run(
        project,
        *("-n", "1", "--loom-report", "report.json", "--loom-rule", "RANGE-2,FENCE-10"),
        plugins=("xdist",),
        rules=(),
    )
    assert result.returncode == 1
    report = report_of(project / "report.json")
    assert outcomes_of(report)["FENCE-10"] == "error"
    assert outcomes_of(report)["RANGE-2"] == "passed"
    entry = next(rule for rule in report["rules"] if rule["id"] == "FENCE-10")
    assert "the process that ran this test died in it" in entry["reason"]


def test_it_leaves_nothing_behind(project: Path) -> None:
    rules = ("--loom-rule", "APPEND-1,DATA-1", "--loom-depth", "quick")
    passed(run(project, "-p", "no:cacheprovider", rules=rules))
    left = {path.name for path in project.iterdir()} - {"__pycache__"}
    assert left == {"test_mine.py"}


def test_a_project_without_the_kit_sees_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_it():\n    pass\n", "utf-8")
    result = run(tmp_path, "-v", rules=())
    assert result.returncode == 0
    assert "loom" not in result.stdout.replace(str(tmp_path), "")


def test_a_project_without_the_kit_loads_no_suite(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import json, sys\n\n\ndef test_it():\n"
        "    with open('modules.json', 'w') as file:\n"
        "        json.dump(sorted(sys.modules), file)\n",
        "utf-8",
    )
    assert run(tmp_path, rules=()).returncode == 0
    modules = set(json.loads((tmp_path / "modules.json").read_text("utf-8")))
    heavy = {
        "hypothesis",
        "rich",
        "loom_conformance.suites",
        "loom_conformance.lab.session",
        "loom_conformance.report.recorder",
    }
    assert modules & heavy == set()


def test_a_wrong_declaration_is_one_clear_error(project: Path) -> None:
    (project / "test_mine.py").write_text(
        MINE.replace("TestMine = conformance(MemoryBackend)", "") + "class Wrong(MemoryBackend):\n"
        "    declined = {'core': 'no'}\n"
        "TestMine = conformance(Wrong)\n",
        "utf-8",
    )
    result = run(project)
    assert result.returncode == 2
    assert 'declined names "core", which cannot be declined' in result.stdout
    assert result.stdout.count("cannot be tested as it is declared") == 1
