"""Runs the steps of a Dockerfile without a container daemon.

Absolute paths are moved under one folder, which stands for the root of the stage that is being built; a finished stage
is renamed, so that `COPY --from` keeps absolute paths valid. The base image is an empty Python environment with pip.
apt-get, groupadd, useradd and install are recorded and not run, because they would change this machine.

`pip wheel` of the sdist gets the modules that the checkout has compiled already, so that nothing is compiled twice.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
ABSOLUTE = re.compile(r"(?<![\w:/.}$])/(?=[a-z])")
SYSTEM_PATH = "/usr/bin:/bin"
RECORDED = ("apt-get", "groupadd", "useradd", "install")

PIP = """#!{python}
import sys
from pip._internal.cli.main import main
sys.path.append({checkout!r})
from compat_tests.dockerfile import with_compiled_modules
sys.path.pop()
sys.exit(main([with_compiled_modules(word) if "wheel" in sys.argv else word for word in sys.argv[1:]]))
"""


@dataclass
class Image:
    """What the last stage of a Dockerfile leaves for `docker run`."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    users: dict[str, int] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)

    def here(self, text: str) -> str:
        """Return the text with its absolute paths moved under the root."""
        return ABSOLUTE.sub(f"{self.root}/", text)

    def popen(self, command: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
        """Start a command in the image's environment, as the image's user where this process may change its user."""
        environment = {**self.environment, **variables}
        environment["PATH"] = f"{environment['PATH']}:{self.root}/usr/local/bin:{SYSTEM_PATH}"
        if os.getuid() == 0:
            command = [*as_user(self.users[self.user]), *command]
        workdir = self.here(self.workdir)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=workdir, env=environment, stdout=pipe, stderr=pipe, text=True)


def as_user(user_id: int) -> list[str]:
    """Return the prefix of a command that runs as this user. It may read everything: Python may lie in root's home."""
    capability = "+dac_read_search"
    who = ["--reuid", str(user_id), "--regid", str(user_id), "--clear-groups"]
    return ["setpriv", *who, "--inh-caps", capability, "--ambient-caps", capability, "--"]


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction and its argument."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, argument = line.strip().partition(" ")
            yield word, argument.strip()


def build(dockerfile: Path, place: Path) -> Image:
    """Run all stages and return the last one. Raises CalledProcessError for a step that fails."""
    arguments: dict[str, str] = {}
    stages: dict[str, Path] = {}
    image = Image(place / "root")
    name = ""
    for word, argument in instructions(dockerfile.read_text()):
        if word == "ARG":
            key, _, value = argument.partition("=")
            arguments[key] = value
        elif word == "FROM":
            if image.root.exists():
                stages[name] = image.root.rename(place / f"stage-{len(stages)}")
            base, _, name = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], argument).partition(" AS ")
            if not re.fullmatch(r"python:3\.\d+-slim", base):
                raise ValueError(f"{base} is not a slim image of Python")
            image = Image(place / "root")
            make_base(image.root)
        else:
            step(image, word, argument, stages, dockerfile.parent)
    return image


def make_base(root: Path) -> None:
    """Make what python:slim offers: python and pip in /usr/local, nothing else."""
    local = root / "usr" / "local"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(local)], check=True)
    (packages,) = local.glob("lib/python3.*/site-packages")
    for found in Path(sysconfig.get_path("purelib")).glob("pip*"):
        (packages / found.name).symlink_to(found)
    pip = local / "bin" / "pip"
    pip.write_text(PIP.format(python=local / "bin" / "python", checkout=str(CHECKOUT)))
    pip.chmod(0o755)
    stubs = root / "stubs"
    stubs.mkdir()
    for name in RECORDED:
        (stubs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {root}/recorded\n')
        (stubs / name).chmod(0o755)
    (root / "recorded").touch()


def step(image: Image, word: str, argument: str, stages: dict[str, Path], context: Path) -> None:
    if word == "RUN":
        run(image, argument)
    elif word == "COPY":
        copy(image, argument.split(), stages, context)
    elif word == "ENV":
        for pair in shlex.split(argument):
            key, _, value = pair.partition("=")
            image.environment[key] = image.here(value.replace(":$PATH", ""))  # popen adds the base image's PATH
    elif word == "WORKDIR":
        image.workdir = argument
        Path(image.here(argument)).mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        image.user = argument
    elif word == "VOLUME":
        image.volumes.append(argument)
    elif word == "EXPOSE":
        image.ports.append(int(argument))
    elif word == "HEALTHCHECK":
        image.health = json.loads(argument.partition(" CMD ")[2])
    elif word == "ENTRYPOINT":
        image.entrypoint = json.loads(argument)
    elif word == "CMD":
        image.command = json.loads(argument)
    else:
        raise ValueError(f"{word} is not an instruction that compat_tests/dockerfile.py runs")


def run(image: Image, command: str) -> None:
    path = f"{image.root}/stubs:{image.root}/usr/local/bin:{SYSTEM_PATH}"
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_", "http"))}
    home = image.root / "root"
    home.mkdir(exist_ok=True)
    environment = {**kept, "HOME": str(home), "PATH": path}
    environment |= {"PIP_CACHE_DIR": pip_cache(), "PIP_CONSTRAINT": str(constraints(image.root))}
    shell = ["/bin/sh", "-ec", image.here(command).replace("--no-cache-dir", "")]
    subprocess.run(shell, cwd=image.here(image.workdir), env=environment, check=True)
    recorded = (image.root / "recorded").read_text().splitlines()
    (image.root / "recorded").write_text("")
    for line in recorded:
        take_note(image, line.split())


def pip_cache() -> str:
    answer = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], check=True, capture_output=True, text=True)
    return answer.stdout.strip()


def constraints(root: Path) -> Path:
    """Return a file that holds Cython to the version of the checkout, whose generated C is used again."""
    path = root / "constraints.txt"
    path.write_text(f"Cython=={version('Cython')}\n")
    return path


def take_note(image: Image, words: list[str]) -> None:
    """Keep what a recorded command would have changed."""
    if words[:2] == ["apt-get", "install"]:
        image.packages += [word for word in words[2:] if not word.startswith("-")]
    elif words[0] == "useradd":
        image.users[words[-1]] = int(words[words.index("--uid") + 1])
    elif words[0] == "install":
        (owner,) = (word.partition("=")[2] for word in words if word.startswith("--owner="))
        folder = Path(words[-1])
        folder.mkdir(parents=True)
        if os.getuid() == 0:
            os.chown(folder, image.users[owner], image.users[owner])


def copy(image: Image, words: list[str], stages: dict[str, Path], context: Path) -> None:
    *options, source, target = words
    into = Path(image.here(target)) if target.startswith("/") else Path(image.here(image.workdir)) / target
    if options:
        (stage,) = (stages[option.removeprefix("--from=")] for option in options)
        shutil.copytree(f"{stage}{source}", into, symlinks=True)
    elif source == ".":
        shutil.copytree(context, into, ignore=ignored(context), dirs_exist_ok=True)
    else:
        raise ValueError(f"COPY {source}: only the whole context is copied")


def ignored(context: Path) -> Callable[[str, list[str]], set[str]]:
    """Return what .dockerignore excludes: the top level but for names behind `!`, and `**/` patterns anywhere."""
    lines = (context / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    anywhere = [line.removeprefix("**/") for line in lines if line.startswith("**/")]

    def exclude(folder: str, names: list[str]) -> set[str]:
        if Path(folder) == context:
            return set(names) - kept
        return {name for name in names if any(fnmatch(name, pattern) for pattern in anywhere)}

    return exclude


def with_compiled_modules(word: str) -> str:
    """Return a folder with the unpacked sdist and the checkout's compiled modules in its place; other words unchanged.

    The C and the modules are newer than the sources beside them, so that the build finds nothing to compile.
    """
    if not word.endswith(".tar.gz"):
        return word
    sdist = Path(word)
    shutil.unpack_archive(sdist, sdist.parent / "unpacked")
    (tree,) = (sdist.parent / "unpacked").iterdir()
    built = tree / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    built.mkdir(parents=True)
    shutil.copy(CHECKOUT / "build" / "recipe.txt", tree / "build")
    for suffix, into in ((".c", tree), (sysconfig.get_config_var("EXT_SUFFIX"), built)):
        for found in (CHECKOUT / "kbroker" / "_core").rglob(f"*{suffix}"):
            path = into / found.relative_to(CHECKOUT)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, path)
    return str(tree)
