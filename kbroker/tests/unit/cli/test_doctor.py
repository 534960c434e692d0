"""`kbroker doctor`: a line a check, and an exit code that says whether a broker can run."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

import kbroker
from kbroker.cli import main


def doctor(data_dir: Path, port: int) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["doctor", "--data-dir", str(data_dir), "--port", str(port)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def line_about(subject: str, output: str) -> str:
    return next(line for line in output.splitlines() if line[2:].startswith(subject))


def test_a_machine_that_is_ready_gets_only_ticks(tmp_path: Path) -> None:
    code, output = doctor(tmp_path / "new", free_port())
    assert code == 0, output
    assert "✗" not in output
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert line_about(codec, output)
    assert not (tmp_path / "new").exists()


def test_a_port_in_use_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = doctor(tmp_path, port)
    assert code == 1
    assert line_about(f"port {port}", output).startswith("✗")


def test_a_directory_tells_whose_it_is_and_whether_it_is_open(tmp_path: Path) -> None:
    broker = kbroker.Broker(tmp_path).start()
    code, output = doctor(tmp_path, free_port())
    assert code == 1
    assert line_about("lock", output).startswith("✗")
    broker.stop()
    code, output = doctor(tmp_path, free_port())
    assert code == 0, output
    assert "node 1" in line_about("data directory", output)
    assert "clean" in line_about("last stop", output)
    (tmp_path / f"t-0.{'0' * 32}-stray").mkdir()
    code, output = doctor(tmp_path, free_port())
    assert code == 0, output
    assert f"t-0.{'0' * 32}-stray belongs to no topic" in line_about("stray", output)


def test_a_directory_that_is_none_or_broken_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert doctor(tmp_path / "file", free_port())[0] == 1
    (tmp_path / "meta.properties").write_text("version=9\nnode.id=1\n")
    code, output = doctor(tmp_path, free_port())
    assert code == 1
    assert line_about("data directory", output).startswith("✗")


def test_doctor_refuses_the_folders_that_start_refuses(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    code, output = doctor(tmp_path, free_port())
    assert code == 1
    assert f"{tmp_path} is not a data directory: it holds notes.txt" in line_about("data directory", output)
    with pytest.raises(kbroker.broker.StartError, match="is not a data directory: it holds notes"):
        kbroker.Broker(tmp_path).start()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
