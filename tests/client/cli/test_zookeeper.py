"""`ottla zookeeper`: its installation, and mistakes; tests/interop/test_secure_local_cluster.py has the migrations."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.client.cli.conftest import Ottla

from ottla.client.cli.commands import zookeeper as commands
from ottla.client.local_cluster import java
from ottla.client.local_cluster.errors import JavaNotFoundError
from ottla.client.local_cluster.zookeeper_jars import JARS, ZOOKEEPER_VERSION, find_class_path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; nothing else names a repository."""
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OTTLA_MAVEN_REPOSITORY", raising=False)
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    return tmp_path / "cache"


def test_the_installed_jars_are_those_of_pyspark_and_come_first(ottla: Ottla, cache: Path) -> None:
    """The same versions and bytes, so a cluster does not notice which ones it runs on."""
    package = java.package_folder("pyspark")
    assert package is not None
    assert find_class_path(tls=True) == [package / "jars" / jar.file_name for jar in JARS]

    printed = ottla("zookeeper", "install", "--from", str(package / "jars"), "--format", "json")

    folder = cache / "zookeeper" / ZOOKEEPER_VERSION
    size_bytes = sum(file.stat().st_size for file in folder.iterdir())
    assert (printed.code, printed.items) == (
        0,
        [
            {
                "version": ZOOKEEPER_VERSION,
                "folder": str(folder),
                "source": str(package / "jars"),
                "jars": len(JARS),
                "fetched": len(JARS),
                "size_bytes": size_bytes,
            }
        ],
    )
    assert find_class_path(tls=True) == [folder / jar.file_name for jar in JARS]
    again = ottla("zookeeper", "install", "--from", str(package / "jars"))
    assert again.rows == [[ZOOKEEPER_VERSION, str(len(JARS)), "0", "7.8", "MiB", str(folder)]]
    as_yaml = ottla("zookeeper", "install", "--from", str(folder), "--format", "yaml")
    assert [item["fetched"] for item in yaml.safe_load(as_yaml.out)] == [0]


def test_the_environment_names_the_repository(
    ottla: Ottla, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTTLA_MAVEN_REPOSITORY takes what --from takes."""
    monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", str(tmp_path / "none"))
    failed = ottla("zookeeper", "install")
    assert (failed.code, "there is no such folder" in failed.err) == (2, True), failed.err
    (tmp_path / "none").mkdir()
    failed = ottla("zookeeper", "install")
    assert (failed.code, f"has no zookeeper-{ZOOKEEPER_VERSION}.jar, " in failed.err) == (1, True), failed.err


def test_an_installation_says_that_java_is_missing(ottla: Ottla, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jars are there all the same."""

    def no_java() -> Path:
        raise JavaNotFoundError("ZooKeeper needs Java.")

    monkeypatch.setattr(commands, "find_java", no_java)
    package = java.package_folder("pyspark")
    done = ottla("zookeeper", "install", "--from", f"{package}/jars")
    assert (done.code, done.err) == (0, "ZooKeeper needs Java.\n")


@pytest.mark.parametrize(
    ("options", "because", "code"),
    [
        (None, "No such file", 2),
        ("zookeeper.connect=127.0.0.1:1", "needs a login that the nodes belong to", 2),
        (
            "zookeeper.connect=127.0.0.1:1\nzookeeper.connection.timeout.ms=200\nottla.zookeeper.sasl.jaas.config="
            'org.apache.zookeeper.server.auth.DigestLoginModule required username="u" password="p";',
            "no ZooKeeper server answers at 127.0.0.1:1",
            1,
        ),
    ],
)
def test_a_migration_that_cannot_be_done_says_why(
    ottla: Ottla, tmp_path: Path, options: str | None, because: str, code: int
) -> None:
    """With the reason of the broker's process, and its exit code."""
    config = tmp_path / "server.properties"
    if options is not None:
        config.write_text(options + "\n")
    failed = ottla("zookeeper", "secure", "--config", str(config))
    assert (failed.code, because in failed.err) == (code, True), failed.err
    assert "Traceback" not in failed.err


def test_nothing_is_opened_without_a_yes(ottla: Ottla, tmp_path: Path) -> None:
    """Everybody could change the cluster then."""
    refused = ottla("zookeeper", "unsecure", "--config", str(tmp_path / "server.properties"))
    assert (refused.code, "repeat the command with --yes" in refused.err) == (2, True)
