"""Small files on whatever file system Spark writes to, through Hadoop's own classes."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """Paths are strings, as Spark takes them."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._jvm, self._hadoop = jvm, context._jsc.hadoopConfiguration()

    def names(self, directory: str) -> list[str]:
        """What lies in it; nothing when it is not there."""
        system, path = self._at(directory)
        if not system.exists(path):
            return []
        return [entry.getPath().getName() for entry in system.listStatus(path)]

    def exists(self, name: str) -> bool:
        system, path = self._at(name)
        return bool(system.exists(path))

    def read(self, name: str) -> str:
        system, path = self._at(name)
        stream = system.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_json(self, name: str, value: object) -> None:
        """Whole or not at all, where a rename is atomic: HDFS and local file systems, not object stores."""
        system, path = self._at(name)
        _, beside = self._at(f"{name}.tmp")
        stream = system.create(beside, True)
        stream.write(bytearray(json.dumps(value).encode()))
        stream.hsync()
        stream.close()
        if not system.rename(beside, path):
            raise OSError(f"could not rename {beside} to {path}")

    def _at(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(name)
        return path.getFileSystem(self._hadoop), path
