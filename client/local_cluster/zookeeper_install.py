"""Bring ZooKeeper's jars into their folder, from a Maven repository or another folder.

`ottla zookeeper install` does this when it is asked to, and `ottla up` when this machine has no ZooKeeper.

A jar gets its name only when all its bytes are on the disk and have the SHA-256 that we expect. So any number of
processes may install at once, an installation that was interrupted goes on where it ended, and it does not matter
whether the repository can be trusted.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit
from xml.etree import ElementTree

from ottla.client.local_cluster.errors import InstallError, OptionError
from ottla.client.local_cluster.zookeeper_jars import JARS, PinnedJar

MAVEN_CENTRAL: Final = "https://repo.maven.apache.org/maven2"
INSTALL_SECONDS_MAX: Final = 600.0
# The longest silence of a repository.
SILENCE_SECONDS_MAX: Final = 30.0
CHUNK_BYTES: Final = 64 * 1024
PART_SUFFIX: Final = ".part"
SETTINGS_BYTES_MAX: Final = 1024 * 1024

_ELSEWHERE: Final = (
    "`ottla zookeeper install --from` takes another Maven repository, or a folder with the jars: one that was filled "
    "on another machine will do."
)


@dataclass(frozen=True, slots=True)
class Installation:
    """What an installation has done."""

    folder: Path
    source: str
    fetched: int


def default_source(home: Path | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return what OTTLA_MAVEN_REPOSITORY names, else the repository that Maven uses here.

    That is the mirror of Central in Maven's settings, or Central itself.
    """
    if named := environment.get("OTTLA_MAVEN_REPOSITORY"):
        return named
    settings = (home or Path.home()) / ".m2" / "settings.xml"
    try:
        with settings.open("rb") as file:
            root = ElementTree.fromstring(file.read(SETTINGS_BYTES_MAX))  # noqa: S314 - the user's own file
    except (OSError, ElementTree.ParseError):
        return MAVEN_CENTRAL
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        repositories = {each.strip() for each in mirror.findtext("{*}mirrorOf", "").split(",")}
        url = mirror.findtext("{*}url", "").strip()
        is_for_central = not repositories.isdisjoint({"*", "external:*", "central"}) and "!central" not in repositories
        if is_for_central and _is_url(url) and "${" not in url:
            return url
    return MAVEN_CENTRAL


def install(
    source: str, folder: Path, tell: Callable[[int], None], *, seconds_max: float = INSTALL_SECONDS_MAX
) -> Installation:
    """Bring all jars into the folder, and call `tell` with the number of bytes that are there.

    `source` is the URL of a Maven repository or the path of a folder. Jars that are in place already are kept.
    """
    fetch = _opened(source, seconds_max)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_old_parts(folder, seconds_max)
        missing = [jar for jar in JARS if not _is_in_place(folder / jar.file_name, jar)]
        done = sum(jar.size_bytes for jar in JARS) - sum(jar.size_bytes for jar in missing)
        fetch.expect(missing)
        for jar in missing:
            for part_bytes in _store(fetch.chunks(jar), folder, jar, fetch.where(jar)):
                tell(done + part_bytes)
            done += jar.size_bytes
    except OSError as error:
        raise InstallError(f"Cannot write to {folder}: {error.strerror or error}.") from error
    return Installation(folder, fetch.name, len(missing))


def source_name(source: str) -> str:
    """Return a source as it may be printed: without a password. OptionError if it cannot be a source."""
    return _opened(source, 0.0).name


def _opened(source: str, seconds_max: float) -> _Repository | _Folder:
    return _Repository(source, time.monotonic() + seconds_max) if _is_url(source) else _Folder(source)


class _Repository:
    """A Maven repository at a URL, which may have a user and a password."""

    def __init__(self, url: str, deadline: float) -> None:
        try:
            parts = urlsplit(url)
            host = parts.netloc.rpartition("@")[2]
            if not parts.hostname or parts.port == 0:
                raise ValueError
        except ValueError:
            raise OptionError("The URL of the Maven repository has no valid host and port.") from None
        self._deadline = deadline
        # Without the password, so that it is not printed.
        self.name = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._login = ""
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._login = "Basic " + base64.b64encode(login.encode()).decode()

    def where(self, jar: PinnedJar) -> str:
        return f"{self.name}/{jar.repository_path}"

    def expect(self, jars: list[PinnedJar]) -> None:
        """Nothing to check: a request shows whether a jar is there."""

    def chunks(self, jar: PinnedJar) -> Iterator[bytes]:
        url = self.where(jar)
        try:
            request = urllib.request.Request(url)  # noqa: S310 - http: or https: only
            if self._login:
                # Another host, to which the repository redirects us, does not get it.
                request.add_unredirected_header("Authorization", self._login)
            with urllib.request.urlopen(request, timeout=self._silence_s(url)) as response:  # noqa: S310 - as above
                while chunk := response.read1(CHUNK_BYTES):
                    self._silence_s(url)
                    yield chunk
        except urllib.error.HTTPError as error:
            error.close()
            raise InstallError(f"{url}: HTTP {error.code} {error.reason}. {_ELSEWHERE}") from error
        except urllib.error.URLError as error:
            reason = error.reason.strerror if isinstance(error.reason, OSError) else None
            raise InstallError(f"Cannot reach {self.name}: {reason or error.reason}. {_ELSEWHERE}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise InstallError(f"Cannot read {url}: {error}. Run the command again, it goes on from there.") from error

    def _silence_s(self, url: str) -> float:
        """Return how long we may wait for bytes; InstallError if the time is up."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise InstallError(f"{url} takes too long. Run the command again, it goes on from there.")
        return min(SILENCE_SECONDS_MAX, left)


class _Folder:
    """A folder with jars, side by side or as in a Maven repository."""

    def __init__(self, path: str) -> None:
        if "://" in path:
            raise OptionError("A source of ZooKeeper is a folder, or a URL that starts with http:// or https://.")
        self.path = Path(path).absolute()
        self.name = str(self.path)
        if not self.path.is_dir():
            raise OptionError(f"{path}, the source of ZooKeeper: there is no such folder.")

    def where(self, jar: PinnedJar) -> str:
        return str(self._file(jar) or self.path / jar.file_name)

    def expect(self, jars: list[PinnedJar]) -> None:
        """Raise InstallError if the folder lacks any of these."""
        if missing := [jar.file_name for jar in jars if self._file(jar) is None]:
            raise InstallError(f"{self.path} has no {', '.join(missing)}.")

    def chunks(self, jar: PinnedJar) -> Iterator[bytes]:
        try:
            with open(self.where(jar), "rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise InstallError(f"Cannot read {self.where(jar)}: {error.strerror}.") from error

    def _file(self, jar: PinnedJar) -> Path | None:
        places = (self.path / jar.file_name, self.path / jar.repository_path)
        return next((place for place in places if place.is_file()), None)


def _store(chunks: Iterator[bytes], folder: Path, jar: PinnedJar, where: str) -> Iterator[int]:
    """Write a jar and give it its name, if it is the one that we expect; yield how many bytes are written."""
    digest, size_bytes = hashlib.sha256(), 0
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{jar.file_name}.", suffix=PART_SUFFIX, delete=False) as part:
        try:
            for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > jar.size_bytes:
                    raise InstallError(f"{where} has more than {jar.size_bytes} bytes, so it is not the jar we expect.")
                digest.update(chunk)
                part.write(chunk)
                yield size_bytes
            if size_bytes < jar.size_bytes:
                raise InstallError(
                    f"{where} ended after {size_bytes} of {jar.size_bytes} bytes. Run the command again, it goes on "
                    "from there."
                )
            if digest.hexdigest() != jar.sha256:
                raise InstallError(
                    f"{where} is not the jar we expect: its SHA-256 is {digest.hexdigest()}, not {jar.sha256}. "
                    f"It was not installed. {_ELSEWHERE}"
                )
            part.flush()
            os.fchmod(part.fileno(), 0o644)
            os.fsync(part.fileno())
            os.replace(part.name, folder / jar.file_name)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _is_url(text: str) -> bool:
    return text.lower().startswith(("http://", "https://"))


def _is_in_place(path: Path, jar: PinnedJar) -> bool:
    try:
        if path.stat().st_size != jar.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def _remove_old_parts(folder: Path, seconds_max: float) -> None:
    """Remove what killed installations have left; nobody writes to a part that is older than an installation may be."""
    for part in folder.glob(f"*{PART_SUFFIX}"):
        try:
            if time.time() - part.stat().st_mtime > max(seconds_max, INSTALL_SECONDS_MAX):
                part.unlink()
        except FileNotFoundError:
            # Another process was faster.
            continue
