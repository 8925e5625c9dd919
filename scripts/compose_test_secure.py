"""Try the profile `secure` of docker-compose.yml for real: `make compose-test-secure`.

Three brokers with TLS, passwords and ACLs, without the open ones: used from the host with the files that were made for
it, refused without them, harmed, and started again.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.compose_test import (
    PARTITIONS,
    TOPIC,
    Cluster,
    FailedError,
    Load,
    build,
    check,
    kill_broker,
    main,
    run,
    step,
    stop_and_start,
    use_from_host,
    wait_until,
)

FILES = "/etc/ottla/security"
REFUSED_SECONDS_MAX = 15
TOPIC_REFUSED = 'KafkaError{code=TOPIC_AUTHORIZATION_FAILED,val=29,str="Broker: Topic authorization failed"}'


class RefusedError(Exception):
    """The brokers do not talk to a client."""


class SecureCluster(Cluster):
    """The brokers of the profile, and their ZooKeeper."""

    project = "ottla-compose-test-secure"
    profiles = ("secure",)
    services = ("secure-zookeeper", "secure-broker-1", "secure-broker-2", "secure-broker-3")
    port_variables = tuple(f"OTTLA_SECURE_PORT_{i}" for i in (1, 2, 3))

    def ottla(self, *arguments: str) -> str:
        """Run our command line as the administrator."""
        return super().ottla(*arguments, "--command-config", f"{FILES}/client.properties")

    def copy_files(self, folder: Path) -> None:
        """Have the files for clients on this host, and take the options from there."""
        run(["docker", "cp", f"{self.container(self.services[1])}:{FILES}/host", str(folder)])
        lines = (folder / "librdkafka.conf").read_text().splitlines()
        options = dict(line.split("=", 1) for line in lines)
        check(options["bootstrap.servers"] == self.client_options["bootstrap.servers"], "other ports in the files")
        self.client_options = {**options, "ssl.ca.location": str(folder / options["ssl.ca.location"])}


def topics_seen(options: Mapping[str, str]) -> set[str]:
    """Ask for the topics from this host; RefusedError with the client's reasons when nobody answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reasons: list[str] = []
    watching: dict[str, Any] = {"log_level": 0, "error_cb": lambda error: reasons.append(error.name())}
    client = AdminClient({**options, **watching})
    try:
        return set(client.list_topics(timeout=REFUSED_SECONDS_MAX).topics)
    except KafkaException as error:
        # The call itself only says that time is up; the reasons are told to those who poll.
        client.poll(1)
        raise RefusedError(" ".join([error.args[0].name(), *reasons])) from error


def check_refused(what: str, options: Mapping[str, str], reason: str) -> None:
    """No broker answers such a client, and it can tell why."""
    try:
        topics_seen(options)
    except RefusedError as error:
        check(reason in str(error), f"{what} is refused as {error}")
    else:
        raise FailedError(f"{what} is let in")


def keep_secrets(cluster: Cluster) -> None:
    """What Docker tells of a container, and what the brokers log, has no password."""
    password = cluster.client_options["sasl.password"]
    for service in cluster.services[1:]:
        check(password not in run(["docker", "inspect", cluster.container(service)]), f"{service} tells a password")
    check(password not in cluster.compose("logs", "--no-color"), "a password is in the logs")


def refuse(cluster: Cluster) -> None:
    """Nobody comes in with another password, without one, or without TLS; and nobody does what he has no right to."""
    options = cluster.client_options
    check_refused("a wrong password", {**options, "sasl.password": "guessed"}, "_AUTHENTICATION")
    check_refused("a client without TLS", {"bootstrap.servers": options["bootstrap.servers"]}, "_TRANSPORT")
    stranger = {**options, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "wonderland"}
    create = ["ottla", "user", "create", "alice", "--command-config", f"{FILES}/client.properties"]
    cluster.compose("exec", "-T", "-e", "OTTLA_PASSWORD=wonderland", cluster.services[1], *create)
    load = Load({**stranger, "enable.idempotence": "false"})
    load.produce(1)
    check(load.errors == [TOPIC_REFUSED], f"without a right: {load.errors}")
    check(TOPIC not in topics_seen(stranger), "a user without a right sees the topic")
    cluster.ottla("acl", "create", "--producer", "--principal", "User:alice", "--topic", TOPIC)
    wait_until(lambda: TOPIC in topics_seen(stranger), "a user with a right sees the topic", 60)


def try_all(cluster: Cluster) -> None:
    """All steps in turn."""
    if not isinstance(cluster, SecureCluster):
        raise FailedError("not a secure cluster")
    build(cluster)
    with step("up and healthy"):
        cluster.up()
    with tempfile.TemporaryDirectory() as folder:
        with step("the files for the host copied"):
            cluster.copy_files(Path(folder) / "host")
        load = Load(cluster.client_options)
        use_from_host(cluster, load)
        with step("the topic listed with the command line inside a container"):
            listed = cluster.ottla("topic", "list", "--format", "json")
            check(f'"name": "{TOPIC}"' in listed and f'"num_partitions": {PARTITIONS}' in listed, f"listed {listed!r}")
        with step("wrong passwords, no TLS and missing rights refused"):
            refuse(cluster)
        kill_broker(cluster, load)
        stop_and_start(cluster, load)
        with step("no password in the logs, nor in what Docker tells"):
            keep_secrets(cluster)


if __name__ == "__main__":
    sys.exit(main(SecureCluster, try_all))
