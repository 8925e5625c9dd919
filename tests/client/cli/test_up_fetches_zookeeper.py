"""`ottla up` on a machine without a ZooKeeper: it fetches one, once, unless the user does not want that."""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.cli.conftest import Ottla
from tests.client.clusters import FAKE_BROKER
from tests.client.local_cluster.maven_repository import Repository, serving
from tests.kit.waiting import until

from ottla.client.local_cluster import java, zookeeper_jars
from ottla.client.local_cluster.zookeeper_jars import JARS, install_folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A Maven repository with ZooKeeper, which the environment names; this machine has no ZooKeeper."""
    package = java.package_folder("pyspark")
    assert package is not None
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: None)
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.delenv("OTTLA_FETCH", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    with serving({jar.repository_path: (package / "jars" / jar.file_name).read_bytes() for jar in JARS}) as server:
        monkeypatch.setenv("OTTLA_MAVEN_REPOSITORY", server.url.replace("http://", "http://alice:secret@"))
        yield server


@pytest.fixture
def up(tmp_path: Path, ottla: Ottla) -> Iterator[list[str]]:
    """The arguments of `ottla up` for one broker that does nothing; the cluster is stopped afterwards."""
    ports = ["--base-port", "0", "--http-base-port", "0", "--zookeeper-port", "0", "--brokers", "1"]
    command = ["--no-console", "--broker-command", shlex.join(FAKE_BROKER)]
    yield ["up", "--detach", "--dir", str(tmp_path / "cluster"), *ports, *command]
    if (tmp_path / "cluster" / "cluster.json").exists():
        ottla("down", "--dir", str(tmp_path / "cluster"))


def test_the_first_up_fetches_zookeeper_and_the_second_does_not(
    ottla: Ottla, up: list[str], repository: Repository, tmp_path: Path
) -> None:
    """One line says what comes from where, without a password; then the real ZooKeeper runs."""
    first = ottla(*up)
    assert first.code == 0, first.err
    announced = f"fetching ZooKeeper 3.9.5 once, 8 MB, from {repository.url} to {install_folder()}\n"
    assert (first.err.count(announced), "secret" in first.err) == (1, False)
    assert "ZooKeeper is ready after" in first.err
    assert len(repository.asked) == len(JARS)

    assert ottla("down", "--dir", str(tmp_path / "cluster")).code == 0
    second = ottla(*up)
    assert (second.code, "fetching" in second.err, len(repository.asked)) == (0, False, len(JARS))


@pytest.mark.parametrize("how", ["--no-fetch", "OTTLA_FETCH=0"])
def test_nothing_is_fetched_from_the_network_by_users_who_do_not_want_it(
    ottla: Ottla, up: list[str], repository: Repository, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The message says what they can do instead."""
    if how == "--no-fetch":
        up = [*up, how]
    else:
        monkeypatch.setenv(*how.split("="))
    refused = ottla(*up)
    assert (refused.code, repository.asked) == (1, [])
    assert "ZooKeeper is not installed. Run `ottla zookeeper install`, or use a running ZooKeeper" in refused.err


def test_a_repository_without_zookeeper_is_an_error_before_anything_is_started(
    ottla: Ottla, up: list[str], repository: Repository, tmp_path: Path
) -> None:
    """The message names the jar, and another way."""
    repository.files.clear()
    failed = ottla(*up)
    assert (failed.code, "HTTP 404 Not Found. `ottla zookeeper install --from` takes" in failed.err) == (1, True)
    assert not (tmp_path / "cluster" / "cluster.json").exists()


def test_ctrl_c_ends_the_wait_for_a_silent_repository(
    ottla: Ottla, up: list[str], repository: Repository, tmp_path: Path
) -> None:
    """At once, although the repository would have half a minute."""
    repository.bytes_max, repository.is_silent = 5, True

    def interrupt() -> None:
        until(lambda: bool(repository.asked))
        os.kill(os.getpid(), signal.SIGINT)

    user = threading.Thread(target=interrupt)
    user.start()
    stopped = ottla(*up)
    user.join()
    assert (stopped.code, "Stopped while ZooKeeper was being fetched." in stopped.err) == (1, True), stopped.err
    assert not repository.over.is_set()
    assert not (tmp_path / "cluster" / "cluster.json").exists()
