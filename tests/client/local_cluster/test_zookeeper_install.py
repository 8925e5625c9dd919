"""Installing ZooKeeper's jars: from a repository that works or fails in any way, and from a folder."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.security.certificates import Certificates
from tests.client.local_cluster.maven_repository import Repository, serving
from tests.kit.apache_kafka import UnavailableError, skip_or_fail
from tests.kit.zookeeper import ZooKeeperServer

from ottla.client.local_cluster import zookeeper_install, zookeeper_jars
from ottla.client.local_cluster.errors import InstallError, OptionError
from ottla.client.local_cluster.zookeeper import ServerSecurity, command, login_file
from ottla.client.local_cluster.zookeeper_install import (
    INSTALL_SECONDS_MAX,
    MAVEN_CENTRAL,
    Installation,
    default_source,
    install,
)
from ottla.client.local_cluster.zookeeper_jars import JARS, PinnedJar, install_folder

FIRST, SECOND = b"the first jar", b"another jar " * 10_000


def pinned(name: str, content: bytes) -> PinnedJar:
    """Return a row of the table for this content."""
    return PinnedJar("org.example", name, "1.0", len(content), hashlib.sha256(content).hexdigest())


TINY = (pinned("first", FIRST), pinned("second", SECOND))


@pytest.fixture
def repository() -> Iterator[Repository]:
    """A repository with both jars."""
    with serving({jar.repository_path: body for jar, body in zip(TINY, (FIRST, SECOND), strict=True)}) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where two tiny jars are to be installed."""
    monkeypatch.setattr(zookeeper_install, "JARS", TINY)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "zookeeper"


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(file.name for file in folder.iterdir())


def test_jars_come_from_a_repository_once(repository: Repository, folder: Path) -> None:
    """A second time, nothing is fetched but what is missing or damaged."""
    told: list[int] = []
    done = install(repository.url + "/", folder, told.append)

    assert done == Installation(folder, repository.url, fetched=2)
    assert [(folder / name).read_bytes() for name in names(folder)] == [FIRST, SECOND]
    assert told == sorted(told)
    assert told[-1] == len(FIRST) + len(SECOND)

    repository.asked.clear()
    (folder / "first-1.0.jar").write_bytes(FIRST[::-1])
    assert install(repository.url, folder, told.append).fetched == 1
    assert (folder / "first-1.0.jar").read_bytes() == FIRST
    assert install(repository.url, folder, told.append).fetched == 0
    assert [path for path, _ in repository.asked] == ["/maven2/org/example/first/1.0/first-1.0.jar"]


@pytest.mark.parametrize(
    ("body", "because"),
    [
        (SECOND[::-1], "its SHA-256 is .*, not .* It was not installed"),
        (SECOND + b"!", "has more than 120000 bytes"),
        (SECOND[:-1], "ended after 119999 of 120000 bytes"),
        (None, "HTTP 404 Not Found. `ottla zookeeper install --from` takes another Maven repository"),
    ],
)
def test_a_jar_that_is_not_the_expected_one_is_not_installed(
    repository: Repository, folder: Path, body: bytes | None, because: str
) -> None:
    """Those before it stay, and are not fetched again."""
    path = f"/maven2/{TINY[1].repository_path}"
    if body is None:
        del repository.files[path]
    else:
        repository.files[path] = body

    with pytest.raises(InstallError, match=because):
        install(repository.url, folder, lambda _: None)
    assert names(folder) == ["first-1.0.jar"]

    repository.files[path] = SECOND
    assert install(repository.url, folder, lambda _: None).fetched == 1


def test_a_connection_that_is_cut_leaves_nothing_behind(repository: Repository, folder: Path) -> None:
    """The length was announced, and then the server was gone."""
    repository.bytes_max = 5

    with pytest.raises(InstallError, match=r"ended after 5 of 13 bytes\. Run the command again"):
        install(repository.url, folder, lambda _: None)
    assert names(folder) == []


def test_a_silent_repository_does_not_hold_us_up(repository: Repository, folder: Path) -> None:
    """The time for an installation is limited."""
    repository.bytes_max, repository.is_silent = 5, True

    with pytest.raises(InstallError, match=r"timed out|takes too long"):
        install(repository.url, folder, lambda _: None, seconds_max=0.2)
    assert names(folder) == []


def test_no_network_is_a_message_with_the_way_out(repository: Repository, folder: Path) -> None:
    """It names the repository, and how to install without it."""
    with Repository({}) as gone:
        url = gone.url
    with pytest.raises(
        InstallError,
        match=rf"Cannot reach {url}: Connection refused\. `ottla zookeeper install --from` takes .* a folder",
    ):
        install(url, folder, lambda _: None)


def test_a_password_goes_to_the_repository_alone(repository: Repository, folder: Path) -> None:
    """Neither a host that it redirects to nor a message gets it."""
    with_login = repository.url.replace("http://", "HTTP://alice:p%40ss@")
    repository.redirect = f"http://localhost:{repository.server_address[1]}"
    done = install(with_login, folder, lambda _: None)

    login = "Basic " + base64.b64encode(b"alice:p@ss").decode()
    assert {path.startswith("/elsewhere"): shown for path, shown in repository.asked} == {False: login, True: None}
    assert done.source == repository.url
    repository.files.clear()
    (folder / "first-1.0.jar").unlink()
    with pytest.raises(InstallError) as refused:
        install(with_login, folder, lambda _: None)
    assert "alice" not in str(refused.value)


@pytest.mark.parametrize("layout", ["side by side", "as in a repository"])
def test_jars_come_from_a_folder(folder: Path, tmp_path: Path, layout: str) -> None:
    """One that was copied from another machine, or a Maven repository on the disk."""
    source = tmp_path / "source"
    for jar, content in zip(TINY, (FIRST, SECOND), strict=True):
        place = source / (jar.file_name if layout == "side by side" else jar.repository_path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    assert install(str(source), folder, lambda _: None) == Installation(folder, str(source), fetched=2)
    assert [(folder / name).read_bytes() for name in names(folder)] == [FIRST, SECOND]


def test_a_folder_without_the_jars_is_told_at_once(folder: Path, tmp_path: Path) -> None:
    """All that is missing, in one message."""
    with pytest.raises(InstallError, match=r"has no first-1\.0\.jar, second-1\.0\.jar\."):
        install(str(tmp_path), folder, lambda _: None)


@pytest.mark.parametrize(
    ("source", "because"),
    [
        ("ftp://example.org", "a folder, or a URL that starts with http"),
        ("http://", "has no valid host"),
        ("https://alice:secret@host:port", "has no valid host"),
        ("/nowhere", "there is no such folder"),
    ],
)
def test_a_source_that_cannot_be_one_is_refused(folder: Path, source: str, because: str) -> None:
    """Before anything is made."""
    with pytest.raises(OptionError, match=because) as refused:
        install(source, folder, lambda _: None)
    assert "secret" not in str(refused.value)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_named(repository: Repository, folder: Path) -> None:
    """With the reason of the system."""
    folder.parent.write_text("a file")

    with pytest.raises(InstallError, match=f"Cannot write to {folder}: "):
        install(repository.url, folder, lambda _: None)


def test_parts_of_killed_installations_are_removed(repository: Repository, folder: Path) -> None:
    """But not those of one that may still be running."""
    folder.mkdir(parents=True)
    for name, age_s in (("first-1.0.jar.old.part", 2 * INSTALL_SECONDS_MAX), ("first-1.0.jar.new.part", 0)):
        (folder / name).write_bytes(b"part")
        modified = (folder / name).stat().st_mtime - age_s
        os.utime(folder / name, (modified, modified))

    install(repository.url, folder, lambda _: None)
    assert names(folder) == ["first-1.0.jar", "first-1.0.jar.new.part", "second-1.0.jar"]


@pytest.mark.parametrize(
    ("mirrors", "expected"),
    [
        ("", MAVEN_CENTRAL),
        ("<mirror><mirrorOf>central</mirrorOf><url>https://a/m2</url></mirror>", "https://a/m2"),
        ("<mirror><mirrorOf>other, *</mirrorOf><url> https://a/m2 </url></mirror>", "https://a/m2"),
        ("<mirror><mirrorOf>*,!central</mirrorOf><url>https://a/m2</url></mirror>", MAVEN_CENTRAL),
        ("<mirror><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url></mirror>", MAVEN_CENTRAL),
        ("<mirror><mirrorOf>*</mirrorOf><url>${env.MIRROR}/m2</url></mirror>", MAVEN_CENTRAL),
        ("<mirror>", MAVEN_CENTRAL),
    ],
)
@pytest.mark.parametrize("namespace", ["", ' xmlns="http://maven.apache.org/SETTINGS/1.0.0"'])
def test_the_repository_is_the_one_that_maven_uses(tmp_path: Path, mirrors: str, expected: str, namespace: str) -> None:
    """A mirror of Central in the user's settings counts; what cannot be read does not."""
    assert default_source(tmp_path, {}) == MAVEN_CENTRAL
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(f"<settings{namespace}><mirrors>{mirrors}</mirrors></settings>")

    assert default_source(tmp_path, {}) == expected
    assert default_source(tmp_path, {"OTTLA_MAVEN_REPOSITORY": "https://b/m2"}) == "https://b/m2"


@pytest.mark.long
def test_a_zookeeper_runs_on_installed_jars_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched from the repository that this machine uses; the server starts in the clear, and with TLS and logins."""
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: None)
    try:
        done = install(default_source(), install_folder(), lambda _: None, seconds_max=180)
    except InstallError as error:
        if str(error).startswith("Cannot reach"):
            skip_or_fail(UnavailableError(str(error)))
        raise
    assert done.fetched == len(JARS)

    login = tmp_path / "login"
    login.write_text(login_file({"broker": "secret"}))
    for security in (None, ServerSecurity(Certificates(tmp_path).keystore, login)):
        with ZooKeeperServer(tmp_path / f"server-{security is not None}", security=security) as server:
            class_path = command(server.folder, security=security)[-3].split(os.pathsep)
            assert {Path(jar).parent for jar in class_path} == {install_folder()}
