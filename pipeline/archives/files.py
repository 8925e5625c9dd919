"""Files of an archive, wherever they are: through Hadoop's file systems, which Spark itself reads and writes with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ottla.pipeline.errors import ArchiveError


class Files:
    """A folder and what is below it; names are relative to it, with slashes.

    What Java throws becomes ArchiveError.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        # Spark has no public way to its file systems from Python.
        self._jvm: Any = cast(Any, spark.sparkContext._jvm)
        self._configuration: Any = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
        try:
            given = self._jvm.org.apache.hadoop.fs.Path(root)
            self._files: Any = given.getFileSystem(self._configuration)
            self._root: Any = self._files.makeQualified(given)
        except Py4JJavaError as error:
            raise ArchiveError(f"{root} is not a folder that Spark knows: {_message(error)}") from error

    def path(self, name: str = "") -> str:
        """Return where a file is, for Spark."""
        return str(self._at(name).toString())

    def exists(self, name: str) -> bool:
        """Say whether there is a file or a folder of this name."""
        return bool(self._call("exists", self._at(name)))

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a folder, sorted; nothing for a folder that is not there."""
        if not self.exists(folder):
            return []
        return sorted(str(status.getPath().getName()) for status in self._call("listStatus", self._at(folder)))

    def walk(self, folder: str = "") -> Iterator[str]:
        """Return all files that readers of a folder see: no name from there on begins with an underscore or a dot."""
        if not self.exists(folder):
            return
        listing = self._call("listFiles", self._at(folder), True)
        while listing.hasNext():
            name = self.relative(str(listing.next().getPath().toUri().toString()))
            if not any(part.startswith(("_", ".")) for part in name.removeprefix(f"{folder}/").split("/")):
                yield name

    def relative(self, uri: str) -> str:
        """Return the name of a file, as Spark says where it is."""
        return unquote(urlsplit(uri).path).removeprefix(str(self._root.toUri().getPath()).rstrip("/") + "/")

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        stream = self._call("open", self._at(name))
        try:
            return bytes(stream.readAllBytes())
        except Py4JJavaError as error:
            raise ArchiveError(f"cannot read {self.path(name)}: {_message(error)}") from error
        finally:
            stream.close()

    def read_written(self, name: str) -> bytes | None:
        """Return what `write` wrote last, also where it was cut off while it replaced what was before; or None."""
        for each in (name, _new(name)):
            if self.exists(each):
                return self.read(each)
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write a small file, which is there whole or not at all; one that is there is replaced."""
        new = _new(name)
        try:
            stream = self._call("create", self._at(new), True)
            try:
                stream.write(content)
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise ArchiveError(f"cannot write {self.path(name)}: {_message(error)}") from error
        self.delete(name)
        self.rename(new, name)

    def rename(self, name: str, target: str) -> None:
        """Give a file another name, in a folder that is made where it is not there."""
        place = self._at(target)
        self._call("mkdirs", place.getParent())
        if not self._call("rename", self._at(name), place):
            raise ArchiveError(f"cannot rename {self.path(name)} to {self.path(target)}")

    def delete(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens where there is none."""
        self._call("delete", self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._files, method)(*arguments)
        except Py4JJavaError as error:
            raise ArchiveError(f"{self.path()}: {method} fails: {_message(error)}") from error


def _new(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.new"


def _message(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString())
