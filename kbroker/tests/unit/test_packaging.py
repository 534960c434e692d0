"""`make run` installs the runtime alone; the sdist holds what git tracks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from kbroker.config import Config

ROOT = Path(__file__).parents[3]


def dry_run(target: str, venv: Path) -> str:
    """Return the commands that make would run for the target in a checkout that has no environment yet."""
    command = ["make", "--dry-run", "--no-print-directory", f"VENV={venv}", target]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def test_make_run_does_not_install_the_test_extra(tmp_path: Path) -> None:
    assert "[test]" not in dry_run("run", tmp_path / "venv")
    assert "[test]" in dry_run("unit", tmp_path / "venv")


def test_make_run_names_each_of_its_four_steps_in_order(tmp_path: Path) -> None:
    assert re.findall(r"\[(\d)/4\]", dry_run("run", tmp_path / "venv")) == ["1", "2", "3", "4"]


def test_classifiers_name_the_supported_versions() -> None:
    table = re.findall(r"^(3\.\d+) x86_64:", (ROOT / ".ci/pythons.txt").read_text(), re.M)
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert classifiers == table == ["3.10", "3.11", "3.12", "3.13", "3.14"]


def test_wheels_are_built_with_the_requirements_that_pip_would_install_for_the_build() -> None:
    table = re.search(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)
    tools = re.search(r"^TOOLS = \((.*)\)$", (ROOT / ".ci/dist.py").read_text(), re.M)
    assert table is not None
    assert tools is not None
    assert set(table[1].split(", ")) <= set(tools[1].split(", "))


def test_readme_says_the_same_of_each_version_and_machine_as_the_table() -> None:
    lines = re.findall(r"^(3\.\d+) x86_64:(\w+) aarch64:(\w+)$", (ROOT / ".ci/pythons.txt").read_text(), re.M)
    rows = re.findall(r"^\| (CPython|Linux \w+) \|(.*)\|$", (ROOT / "README.md").read_text(), re.M)
    said = [[cell.strip() for cell in cells.split("|")] for _name, cells in rows]
    assert [name for name, _cells in rows] == ["CPython", "Linux x86_64", "Linux aarch64"]
    assert list(zip(*said, strict=True)) == lines


def test_make_install_builds_for_this_machine_alone_and_make_aarch64_runs_the_wheel_it_builds(tmp_path: Path) -> None:
    assert re.findall(r"dist\.py (?:.*)--machine (\S+)", dry_run("install", tmp_path / "venv")) == ["$(uname"]
    built, run = re.findall(r"\.ci/(?:dist|aarch64)\.py (.*)", dry_run("aarch64", tmp_path / "venv"))
    assert "--machine aarch64 --only 3.11" in built
    assert "--python 3.11" in run


def test_readme_names_every_extra_and_the_default_data_directory() -> None:
    readme = (ROOT / "README.md").read_text()
    table = (ROOT / "pyproject.toml").read_text().split("optional-dependencies]")[1].split("\n[")[0]
    extras = re.findall(r"^(\w+) = \[", table, re.M)
    assert extras == ["spark", "test"]
    assert [name for name in extras if f".[{name}]" not in readme] == []
    assert "`~/.local/share/kbroker`" in readme
    assert Config().log_dirs == [Path("~/.local/share/kbroker").expanduser()]


def test_sdist_holds_exactly_what_git_tracks_of_the_packages(tmp_path: Path) -> None:
    folders = ("kbroker", "spark_integration")
    tracked = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, check=True, capture_output=True, text=True)
    egg_info = ["egg_info", "--egg-base", str(tmp_path)]
    command = [sys.executable, "setup.py", "--quiet", *egg_info, "sdist", "--dist-dir", str(tmp_path)]
    environment = {**os.environ, "KBROKER_SKIP_CORE": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    held = {name for name in names if name.partition("/")[0] in folders}
    assert held == set(tracked.stdout.splitlines())
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= set(names)


def test_changed_compile_flags_and_directives_regenerate_a_module_that_is_newer_than_its_source(tmp_path: Path) -> None:
    """`setup.py --version` generates the C, as every build does first; setuptools compiles every new C file."""
    core = tmp_path / "kbroker" / "_core"
    core.mkdir(parents=True)
    shutil.copy(ROOT / "kbroker/_core/errors.pyx", core)
    shutil.copy(ROOT / "kbroker/_core/errors.pxd", core)
    script = re.sub(r"= \{\n.*?\n\}\n", '= {"errors": ()}\n', (ROOT / "setup.py").read_text(), count=1, flags=re.S)

    def generated_at(text: str) -> int:
        (tmp_path / "setup.py").write_text(text)
        subprocess.run([sys.executable, "setup.py", "--version"], cwd=tmp_path, check=True, capture_output=True)
        return (core / "errors.c").stat().st_mtime_ns

    first = generated_at(script)
    assert generated_at(script + "# a comment\n") == first
    other_flags = script.replace('"-O2"', '"-O3"')
    second = generated_at(other_flags)
    assert second > first
    assert generated_at(other_flags.replace('"boundscheck": False', '"boundscheck": True')) > second
