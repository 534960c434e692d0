"""The command itself: what it offers, and what it loads to say so."""

import subprocess
import sys

from click.testing import CliRunner

from kbroker.cli import COMMANDS, main


def test_help_names_every_command_without_loading_one() -> None:
    program = (
        "import sys; from kbroker.cli import main; main(['--help'], standalone_mode=False); print(list(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert all(name in ran.stdout for name in COMMANDS)
    assert "kbroker.broker" not in ran.stdout
    assert "asyncio" not in ran.stdout


def test_version_is_told_from_sources_too() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("kbroker ")


def test_every_command_has_help() -> None:
    for name in COMMANDS:
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0
        assert "Usage" in result.output


def test_an_unknown_command_is_exit_code_2() -> None:
    assert CliRunner().invoke(main, ["fly"]).exit_code == 2
