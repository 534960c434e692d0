"""`make run` installs the runtime alone; the sdist holds what git tracks."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

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
