"""What a run keeps is the same in one process and in several: the table, the counts, what was run once more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.oracle.jars import REPOSITORY_ROOT
from compat_tests.shares import FIRST, LAST, TOGETHER

_TESTS = """
import pytest
from compat_tests.harness import Results, Row

@pytest.mark.parametrize("number", range(20))
def test_compares(number: int, results: Results, request: pytest.FixtureRequest) -> None:
    request.node.compat_row = ("client", f"scenario {number}")
    results.client_versions["client"] = "1.0"
    if number == 7:
        pytest.skip("a tool is not installed")
    verdict = ("differs", "meant") if number == 3 else ("same", "")
    results.add(Row("client", f"scenario {number}", *verdict))
    results.add(Row(f"wire {number % 3}", f"v1, case {number}", "same"))

@pytest.mark.parametrize("number", range(5))
def test_fails_the_first_time(number: int, run_directory, topic: str, results: Results, again: str) -> None:
    before = run_directory / f"before-{number}"
    last = before.read_text() if before.exists() else ""
    before.write_text(topic)
    results.add(Row("unsteady", f"of {number}", "same" if last else "differs"))
    assert last, f"first failure of {number}"
    assert last != topic
    assert again == "-again"
"""
_SPREAD = {"one process": ("-n", "0"), "no xdist": ("-p", "no:xdist"), "two workers": ("-n", "2")}
_OWN_SERVER = re.compile(r"^@pytest\.fixture\(scope=\"module\"", re.MULTILINE)
_RUN_AGAIN = re.compile(r"run once more: test_some\.py::(\S+)")


def _run(directory: Path, *options: str) -> tuple[str, str]:
    directory.mkdir()
    (directory / "conftest.py").write_text('pytest_plugins = ["compat_tests.plugin"]\n')
    (directory / "test_some.py").write_text(_TESTS)
    table = directory / "table.md"
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", f"--rootdir={directory}", "test_some.py"]
    command += ["--basetemp", str(directory / "tmp"), "--write-table", "--table", str(table), *options]
    environment = {"PYTHONPATH": str(REPOSITORY_ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return done.stdout, table.read_text()


@pytest.mark.parametrize("spread", _SPREAD)
def test_three_are_run_once_more_and_all_is_told(spread: str, tmp_path: Path) -> None:
    out, table = _run(tmp_path / "run", *_SPREAD[spread])
    again = _RUN_AGAIN.findall(out)
    assert len(set(again)) == len(again) == 3
    assert all(f"first failure of {name[-2]}" in out for name in again)
    assert "2 failed, 22 passed, 1 skipped" in out
    assert "skipped: 1 of a tool is not installed" in out
    # Of the two that had no second chance the first outcome counts.
    assert "compared: 3 differs, 40 same, 1 skipped" in out
    assert re.findall(r"\| (scenario \d+) \|", table) == [f"scenario {number}" for number in range(20)]
    assert re.findall(r"^\| (\d) \|", table, re.MULTILINE) == ["0", "1", "2"]
    assert "client 1.0" in table


def test_files_are_shared_out_by_names_that_exist() -> None:
    files = {path.name: path.read_text() for path in (REPOSITORY_ROOT / "compat_tests").rglob("test_*.py")}
    own = {name for name, text in files.items() if _OWN_SERVER.search(text)}
    assert own == set(TOGETHER), "files whose tests share a server"
    assert set(FIRST) | set(LAST) <= files.keys()
