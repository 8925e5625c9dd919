"""Where the jars of the embedded ZooKeeper are found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.client.local_cluster import zookeeper_jars
from ottla.client.local_cluster.errors import ZooKeeperNotFoundError
from ottla.client.local_cluster.zookeeper_jars import JARS, find_class_path, install_folder

PLAIN = [jar for jar in JARS if not jar.is_for_tls]


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """An empty cache, and a folder without a ZooKeeper."""
    return {"OTTLA_CACHE": str(tmp_path / "cache"), "ZOOKEEPER_HOME": str(tmp_path / "zookeeper"), "PATH": ""}


@pytest.fixture(autouse=True)
def pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package without jars."""
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: tmp_path / name)
    return tmp_path / "pyspark"


def fill(folder: Path, version: str, names: list[str]) -> list[Path]:
    """Make empty jars."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / f"{name}-{version}.jar" for name in names]
    for jar in made:
        jar.touch()
    return made


def fill_cache(environment: Mapping[str, str]) -> list[Path]:
    """Make files with the names and sizes of the pinned jars, which take no space."""
    folder = install_folder(environment)
    folder.mkdir(parents=True)
    for jar in JARS:
        with (folder / jar.file_name).open("wb") as file:
            file.truncate(jar.size_bytes)
    return [folder / jar.file_name for jar in JARS]


def test_the_jars_of_pyspark_are_found_whatever_their_version(environment: Mapping[str, str], pyspark: Path) -> None:
    """One jar for each name: `zookeeper` is not `zookeeper-jute`. Those for TLS are added where they are needed."""
    made = fill(pyspark / "jars", "3.10.1", [jar.name for jar in JARS])

    assert find_class_path(tls=True, environment=environment) == made
    assert find_class_path(environment=environment) == made[: len(PLAIN)]


def test_installed_jars_come_before_those_of_pyspark(environment: Mapping[str, str], pyspark: Path) -> None:
    """But not if one of them was torn."""
    packaged = fill(pyspark / "jars", "3.9.5", [jar.name for jar in JARS])
    installed = fill_cache(environment)

    assert find_class_path(tls=True, environment=environment) == installed
    installed[-1].write_bytes(b"torn")
    assert find_class_path(tls=True, environment=environment) == packaged
    assert find_class_path(environment=environment) == installed[: len(PLAIN)]


def test_an_unpacked_zookeeper_comes_first(environment: Mapping[str, str], tmp_path: Path) -> None:
    """All its jars, whatever it logs with, and its settings for logging."""
    fill_cache(environment)
    home = tmp_path / "zookeeper"
    jars = fill(home / "lib", "3.8.4", ["logback-classic", "zookeeper", "zookeeper-jute"])

    assert find_class_path(environment=environment) == [home / "conf", *jars]


def test_a_zookeeper_on_the_search_path_is_taken(environment: Mapping[str, str], tmp_path: Path) -> None:
    """The link may be anywhere. One without its jars beside it, as Debian has it, is passed over."""
    home = tmp_path / "apache-zookeeper-3.9.3-bin"
    script = home / "bin" / "zkServer.sh"
    script.parent.mkdir(parents=True)
    script.touch(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "zkServer.sh").symlink_to(script)
    found = {**environment, "PATH": str(tmp_path / "bin")}
    with pytest.raises(ZooKeeperNotFoundError):
        find_class_path(environment=found)

    jars = fill(home / "lib", "3.9.3", ["zookeeper", "zookeeper-jute"])
    assert find_class_path(environment=found) == [home / "conf", *jars]


def test_no_jars_is_a_message_with_the_ways_out(
    environment: Mapping[str, str], pyspark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says where no ZooKeeper was, and what to run."""
    fill(pyspark / "jars", "1.0", [jar.name for jar in PLAIN[1:]])
    with pytest.raises(ZooKeeperNotFoundError) as raised:
        find_class_path(environment=environment)
    message = str(raised.value)
    assert "Run `ottla zookeeper install`, or use a running ZooKeeper with --zookeeper HOST:PORT." in message
    assert f"{pyspark / 'jars'} has no zookeeper." in message
    assert f"{tmp_path / 'zookeeper' / 'lib'} has no ZooKeeper" in message

    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: None)
    with pytest.raises(ZooKeeperNotFoundError, match=r"^ZooKeeper is not installed\. Run `ottla zookeeper install`"):
        find_class_path(environment={"OTTLA_CACHE": str(tmp_path), "PATH": ""})
