"""Spark's Kafka connector, of the version of the installed pyspark: four jars, brought once by Maven coordinates.

The jars are named one by one and copied without what their poms ask for: pyspark has the rest, and Spark's parent pom
names repositories that not everyone reaches. Which kafka-clients and commons-pool2 belong to a release, that parent
pom says. Maven's local repository may be half-filled or damaged; then everything is brought once more, past it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

_ROOT = Path(__file__).resolve().parents[1]
_MANIFEST = "complete.json"  # written last: the jars and their sizes
_SCALA = "2.13"  # where the jars of pyspark do not say
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kbroker.spark</groupId><artifactId>connector</artifactId><version>1</version><packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>
{items}
    </artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""


class ConnectorError(Exception):
    """What of the connector is missing, in one sentence."""


class _AbsentError(ConnectorError):
    """Maven's repositories were asked, and do not have it."""


class Artifact(NamedTuple):
    group: str
    name: str
    version: str
    kind: str = "jar"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.{self.kind}"

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    def item(self) -> str:
        """As the configuration of Maven's dependency:copy has it."""
        fields = {"groupId": self.group, "artifactId": self.name, "version": self.version, "type": self.kind}
        inner = "".join(f"<{key}>{value}</{key}>" for key, value in fields.items())
        return f"      <artifactItem>{inner}</artifactItem>"


def spark_version() -> str:
    return installed_version("pyspark")


def scala_version() -> str:
    """The Scala that the installed pyspark is made with: part of the name of every jar of Spark."""
    package = find_spec("pyspark")
    for place in package.submodule_search_locations or () if package else ():
        for jar in Path(place).glob("jars/scala-library-*.jar"):
            return ".".join(jar.stem.removeprefix("scala-library-").split(".")[:2])
    return _SCALA


def connector_coordinates(version: str | None = None) -> str:
    """What `spark.jars.packages` would be given."""
    return str(_of_spark("spark-sql-kafka-0-10", version or spark_version(), scala_version()))


def connector_jars(version: str | None = None, *, scala: str | None = None) -> list[Path]:
    """The jars for a Spark, of the installed pyspark unless told; ConnectorError if one cannot be had.

    The first call asks Maven and fills the cache. Every later one only looks there.
    """
    wanted, built_with = version or spark_version(), scala or scala_version()
    target = cache_directory() / f"spark-kafka-{wanted}_{built_with}"
    found = _kept(target)
    if found is None:
        with _alone(target):  # of two sessions that start at once, one fetches
            found = _kept(target) or _fetched(wanted, built_with, target)
    return found


def cache_directory() -> Path:
    """XDG_CACHE_HOME/kbroker where that is set; .cache of the repository in a checkout, else of the user."""
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg:
        return Path(xdg) / "kbroker"
    return _ROOT / ".cache" if (_ROOT / "pyproject.toml").exists() else Path.home() / ".cache" / "kbroker"


def _of_spark(name: str, version: str, scala: str, kind: str = "jar") -> Artifact:
    return Artifact("org.apache.spark", f"{name}_{scala}", version, kind)


def _candidates(version: str) -> list[str]:
    """Spark's own version, then the first release of its line: a repository may lag behind on patch releases, and
    within a line the connector's inner interfaces do not change."""
    first = ".".join([*version.split(".")[:2], "0"])
    return list(dict.fromkeys((version, first)))


def _kept(target: Path) -> list[Path] | None:
    """The jars of an earlier call, if all of them are there as they were."""
    try:
        sizes = json.loads((target / _MANIFEST).read_text())
        jars = [target / name for name in sorted(sizes)]
        return jars if all(jar.stat().st_size == sizes[jar.name] for jar in jars) else None
    except (FileNotFoundError, ValueError):
        return None


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f"{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetched(version: str, scala: str, target: Path) -> list[Path]:
    what = f"Spark's Kafka connector for pyspark {version}"
    maven = shutil.which("mvn")
    if maven is None:
        raise ConnectorError(f"{what} is not in {target.parent} yet, and mvn, which would bring it, is not installed")
    reasons: list[str] = []
    for candidate in _candidates(version):
        for fresh in (False, True):
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as scratch:
                errand = _Errand(maven, Path(scratch), fresh=fresh)
                try:
                    jars = errand.bring(_jars_of_release(errand, candidate, scala))
                except _AbsentError as error:
                    reasons.append(str(error))
                    break
                except ConnectorError as error:
                    reasons.append(str(error))
                    continue
                (errand.out / _MANIFEST).write_text(json.dumps({jar.name: jar.stat().st_size for jar in jars}))
                shutil.rmtree(target, ignore_errors=True)
                errand.out.rename(target)
                return [target / jar.name for jar in sorted(jars)]
    raise ConnectorError(f"{what} cannot be had: {'; '.join(dict.fromkeys(reasons))}")


def _jars_of_release(errand: _Errand, version: str, scala: str) -> list[Artifact]:
    (parent,) = errand.bring([_of_spark("spark-parent", version, scala, "pom")])
    said = dict(re.findall(r"<(kafka|commons-pool2)\.version>([^<]+)</", parent.read_text()))
    parent.unlink()
    if len(said) < 2:
        raise ConnectorError(f"the parent pom of Spark {version} names no version of kafka-clients or commons-pool2")
    return [
        _of_spark("spark-sql-kafka-0-10", version, scala),
        _of_spark("spark-token-provider-kafka-0-10", version, scala),
        Artifact("org.apache.kafka", "kafka-clients", said["kafka"]),
        Artifact("org.apache.commons", "commons-pool2", said["commons-pool2"]),
    ]


class _Errand:
    """Maven sent out from a scratch directory; `fresh`: with an empty local repository in place of the user's."""

    def __init__(self, maven: str, scratch: Path, *, fresh: bool) -> None:
        self.out = scratch / "jars"
        self._pom = scratch / "pom.xml"
        # -U: what an earlier attempt noted down as missing is asked for again.
        self._command = [maven, "-q", "-B", "-U", "-f", str(self._pom), "dependency:copy"]
        self._command += [f"-DoutputDirectory={self.out}"]
        if fresh:
            self._command.append(f"-Dmaven.repo.local={scratch / 'repository'}")

    def bring(self, artifacts: Sequence[Artifact]) -> list[Path]:
        self._pom.write_text(_POM.format(items="\n".join(one.item() for one in artifacts)))
        ran = subprocess.run(self._command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise _why(ran.stdout + ran.stderr, artifacts)
        files = [self.out / one.file_name for one in artifacts]
        for one, file in zip(artifacts, files, strict=True):
            if not _whole(file):
                raise ConnectorError(f"{one} is damaged in Maven's repository")
        return files


def _why(said: str, artifacts: Sequence[Artifact]) -> ConnectorError:
    absent = re.search(r"Could not find artifact ([^:\s]+:[^:\s]+):", said)
    for one in artifacts:
        if absent is not None and absent[1] == f"{one.group}:{one.name}":
            return _AbsentError(f"mvn finds no {one}")
    lines = (re.sub(r"\x1b\[[0-9;]*m|^\[ERROR\]", "", line).strip() for line in said.splitlines())
    return ConnectorError(f"mvn fails with {next((line[:300] for line in lines if line), 'no word of why')}")


def _whole(file: Path) -> bool:
    if file.suffix != ".jar":
        return file.exists() and file.stat().st_size > 0
    try:
        with ZipFile(file) as jar:
            return jar.testzip() is None
    except (BadZipFile, FileNotFoundError, EOFError):
        return False
