"""What `ottla up --secure` starts, used as somebody who tries it out would: one command, and the file that it names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import NoAuthError  # type: ignore[import-untyped]
from kazoo.security import OPEN_ACL_UNSAFE  # type: ignore[import-untyped]

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.net.settings import ClientSettings

DEADLINE_S = 120
TLS = True
OTTLA = (sys.executable, "-P", "-m", "ottla.client.cli")


@dataclass(frozen=True)
class SecureCluster:
    """A broker that asks for a password, and the files that were made for its clients."""

    directory: Path
    bootstrap_servers: str

    @property
    def client_properties(self) -> Path:
        """The administrator's."""
        return self.directory / "security" / "client.properties"

    def run(self, *command: str, config: Path | None = None, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of ours, as administrator unless another file is given."""
        given = ["--command-config", str(config or self.client_properties), "-b", self.bootstrap_servers]
        return ottla(*command, *given, said=said)


def ottla(*command: str, said: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours."""
    return subprocess.run(
        [*OTTLA, *command],
        input=said,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """One broker, as the command starts it."""
    directory = tmp_path_factory.mktemp("secure") / "cluster"
    ports = ("--base-port", "0", "--http-base-port", "0", "--zookeeper-port", "0", "--no-console")
    up = ottla("up", "--secure", "--detach", "--brokers", "1", "--dir", str(directory), *ports)
    try:
        assert up.returncode == 0, up.stderr
        properties = directory / "security" / "client.properties"
        assert str(properties) in up.stdout
        servers = ClientSettings.from_config(properties).bootstrap_servers
        assert isinstance(servers, str)
        yield SecureCluster(directory, servers)
    finally:
        ottla("down", "--dir", str(directory))


@pytest.fixture(scope="module")
def alice(cluster: SecureCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The options of a user that the administrator has made."""
    folder = tmp_path_factory.mktemp("alice")
    password = folder / "password"
    password.write_text("it's alice\n")
    made = cluster.run("user", "create", "alice", "--password-file", str(password))
    assert made.returncode == 0, made.stderr
    config = folder / "alice.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password=it's alice\n"
        f"ssl.truststore.location={cluster.directory / 'security' / 'ca.pem'}\n"
    )
    return config


def test_the_environment_says_which_file_commands_take(cluster: SecureCluster) -> None:
    """As `ottla up` tells; the file knows where the brokers are, too."""
    variable = {"OTTLA_COMMAND_CONFIG": str(cluster.client_properties)}
    listed = ottla("cluster", "info", "--format", "json", **variable)
    assert (listed.returncode, '"controller' in listed.stdout) == (0, True), listed.stderr


def test_users_have_the_rights_that_they_are_given(cluster: SecureCluster, alice: Path) -> None:
    """The administrator may do everything, a new user nothing until an ACL says so."""
    assert cluster.run("topic", "create", "orders").returncode == 0
    refused = cluster.run("topic", "produce", "orders", config=alice, said="order 1\n")
    assert (refused.returncode, "TOPIC_AUTHORIZATION_FAILED" in refused.stderr) == (1, True), refused.stderr
    granted = cluster.run("acl", "create", "--producer", "--principal", "User:alice", "--topic", "orders")
    assert granted.returncode == 0, granted.stderr
    taken = cluster.run("topic", "produce", "orders", config=alice, said="order 1\n")
    assert taken.returncode == 0, taken.stderr
    read = cluster.run("topic", "consume", "orders", "--offset", "start", "--exit")
    assert read.stdout == "order 1\n", read.stderr
    assert cluster.run("topic", "consume", "orders", "--offset", "start", "--exit", config=alice).returncode == 1


def test_kcat_takes_its_file(cluster: SecureCluster) -> None:
    """Librdkafka has names of its own for the same options."""
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("there is no kcat")
    config = cluster.directory / "security" / "librdkafka.conf"
    listed = subprocess.run(
        [kcat, "-F", config, "-b", cluster.bootstrap_servers, "-L"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert "broker 1 at" in listed.stdout


def test_the_doctor_knows_mistakes_of_clients(cluster: SecureCluster, alice: Path, tmp_path: Path) -> None:
    """Each has a name, and the line that is to be changed."""
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(alice.read_text().replace("it's alice", "a guess"))
    nothing = tmp_path / "nothing.properties"
    nothing.write_text("")
    strange = tmp_path / "strange.properties"
    strange.write_text("security.protocol=SSL\n")
    trusting = tmp_path / "trusting.properties"
    trusting.write_text(f"security.protocol=SSL\nssl.ca.location={cluster.directory / 'security' / 'ca.pem'}\n")
    for config, found, change in (
        (nothing, "speaks TLS, and we speak plaintext", "security.protocol=SSL"),
        (strange, "an authority that we do not trust", "ssl.truststore.location="),
        (trusting, "requires SASL, and we do not authenticate", "security.protocol=SASL_SSL"),
        (wrong, "rejects this user and password", "ottla user update alice"),
    ):
        shown = cluster.run("doctor", config=config)
        assert (shown.returncode, found in shown.stdout, change in shown.stdout) == (2, True, True), shown.stdout
    assert cluster.run("doctor").returncode == 0


@pytest.fixture
def stranger(cluster: SecureCluster) -> Iterator[KazooClient]:
    """Another user of this machine, who reaches the port of ZooKeeper and knows no password."""
    record = ClusterDir(cluster.directory).read()
    assert record is not None
    client = KazooClient(record.zookeeper_connect, use_ssl=TLS, verify_certs=False)
    client.start(timeout=DEADLINE_S)
    yield client
    client.stop()
    client.close()


def test_a_stranger_cannot_change_the_cluster_through_zookeeper(cluster: SecureCluster, stranger: KazooClient) -> None:
    """Neither a password of the administrator, nor rights, topics or brokers."""
    assert cluster.run("topic", "create", "kept").returncode == 0
    credential = json.dumps({"version": 1, "config": {"SCRAM-SHA-512": "salt=..."}}).encode()
    attempts: dict[str, Callable[[], object]] = {
        "create a credential": lambda: stranger.create("/config/users/admin", credential),
        "read credentials": lambda: stranger.get_children("/config/users"),
        "tell brokers of it": lambda: stranger.create("/config/changes/config_change_", b"{}", sequence=True),
        "change rights": lambda: stranger.create("/kafka-acl/Cluster/kafka-cluster", b"{}", makepath=True),
        "delete a topic": lambda: stranger.create("/admin/delete_topics/kept"),
        "remove a topic": lambda: stranger.delete("/brokers/topics/kept", recursive=True),
        "change a topic": lambda: stranger.set("/brokers/topics/kept", b"{}"),
        "pose as a broker": lambda: stranger.create("/brokers/ids/7", b"{}", ephemeral=True),
        "remove a broker": lambda: stranger.delete("/brokers/ids/1"),
        "remove the controller": lambda: stranger.delete("/controller"),
        "open a node": lambda: stranger.set_acls("/config/users", OPEN_ACL_UNSAFE),
        "open the root": lambda: stranger.set_acls("/", OPEN_ACL_UNSAFE),
        "add to the root": lambda: stranger.create("/mine"),
    }
    allowed = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except NoAuthError:
            continue
        allowed.append(name)
    assert allowed == []


def test_a_stranger_reads_what_kafka_leaves_readable(cluster: SecureCluster, stranger: KazooClient) -> None:
    """Addresses, topics and the controller; not the options of users and brokers."""
    assert cluster.run("topic", "create", "readable").returncode == 0
    assert stranger.get_children("/brokers/ids") == ["1"]
    assert "readable" in stranger.get_children("/brokers/topics")
    assert b"brokerid" in stranger.get("/controller")[0]
    for path in ("/config/users", "/config/brokers"):
        with pytest.raises(NoAuthError):
            stranger.get(path)


def test_a_user_is_written_to_a_protected_zookeeper_with_its_login(
    cluster: SecureCluster, stranger: KazooClient, tmp_path: Path
) -> None:
    """For brokers that log in with SCRAM; without the login it is refused."""
    record = ClusterDir(cluster.directory).read()
    assert record is not None
    password = tmp_path / "password"
    password.write_text("a password\n")
    line = ("user", "create", "early", "--password-file", str(password), "--zookeeper", record.zookeeper_connect)
    login = ("--zookeeper-config", str(cluster.directory / "security" / "zookeeper.properties"))
    refused = cluster.run(*line, "--timeout", "2")
    assert (refused.returncode, "no ZooKeeper server answers" in refused.stderr) == (1, True), refused.stderr
    made = cluster.run(*line, *login)
    assert made.returncode == 0, made.stderr
    with pytest.raises(NoAuthError):
        stranger.get("/config/users/early")
    assert "early" in cluster.run("user", "list").stdout


def test_a_tree_is_opened_and_protected_again(cluster: SecureCluster, stranger: KazooClient) -> None:
    """With the options that the cluster has written for that, and while it runs."""
    config = ("--config", str(cluster.directory / "security" / "zookeeper.properties"))
    opened = ottla("zookeeper", "unsecure", *config, "--yes", "--format", "json")
    assert opened.returncode == 0, opened.stderr
    assert json.loads(opened.stdout)["access"] == "unsecure"
    stranger.get("/config/users")
    protected = ottla("zookeeper", "secure", *config)
    assert protected.stdout.split()[:3] == ["ZOOKEEPER", "ACCESS", "NODES"], protected.stderr
    with pytest.raises(NoAuthError):
        stranger.get("/config/users")
    assert cluster.run("topic", "create", "after").returncode == 0


def test_no_password_is_seen_in_processes_or_logs(cluster: SecureCluster) -> None:
    """Neither by those who list processes nor by those who read the brokers' logs."""
    passwords = json.loads((cluster.directory / "security" / "passwords.json").read_text())
    assert ClientSettings.from_config(cluster.client_properties).sasl_plain_password in passwords.values()
    assert len(passwords) == 3
    for listing in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown = listing.read_bytes()
        except OSError:
            continue
        assert not any(password.encode() in shown for password in passwords.values()), listing
    logs = list(cluster.directory.rglob("*.log"))
    assert any(file.stat().st_size for file in logs)
    for file in logs:
        assert not any(password.encode() in file.read_bytes() for password in passwords.values()), file
