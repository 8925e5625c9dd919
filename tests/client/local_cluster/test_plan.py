"""Which processes a cluster is given."""

from __future__ import annotations

import msgspec
import pytest

from ottla.client.local_cluster.errors import ClusterError, OptionError
from ottla.client.local_cluster.plan import ClusterOptions, broker_defaults, broker_identity, plan, zookeeper_servers
from ottla.client.local_cluster.record import ClusterRecord


def planned(
    options: ClusterOptions, previous: ClusterRecord | None = None, *, running: bool = False, host_name: str = "here"
) -> ClusterRecord:
    """Plan with free ports that count up from 30000."""

    def free_port(taken: set[int]) -> int:
        return max({29_999, *taken}) + 1

    return plan(options, previous, running=running, free_port=free_port, host_name=host_name)


def ports(cluster: ClusterRecord) -> list[tuple[int, int | None]]:
    """Return the ports of all processes."""
    return [(process.port, process.http_port) for process in cluster.processes]


def test_without_a_word_there_are_three_brokers_and_a_zookeeper() -> None:
    """The defaults are the ports that Kafka's users know."""
    cluster = planned(ClusterOptions())

    assert ports(cluster) == [(2181, None), (9092, 9644), (9093, 9645), (9094, 9646)]
    assert cluster.zookeeper_connect == "127.0.0.1:2181"
    assert cluster.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


@pytest.mark.parametrize("running", [True, False])
def test_a_broker_that_is_added_has_the_next_ports(running: bool) -> None:
    """Whether the others run or not; it is part of the cluster from then on."""
    grown = planned(ClusterOptions(brokers=4), planned(ClusterOptions()), running=running)

    assert ports(grown)[1:] == [(9092, 9644), (9093, 9645), (9094, 9646), (9095, 9647)]
    assert ports(planned(ClusterOptions(), grown)) == ports(grown)


@pytest.mark.parametrize("running", [True, False])
def test_no_broker_is_removed(running: bool) -> None:
    """A smaller number is refused, with the reason and with what can be done."""
    with pytest.raises(ClusterError, match=r"has 3 brokers\. None is removed.*Leave out --brokers"):
        planned(ClusterOptions(brokers=2), planned(ClusterOptions()), running=running)


def test_a_zookeeper_of_somebody_else_is_no_process_of_the_cluster() -> None:
    """Its connect string goes to the brokers as it is."""
    cluster = planned(ClusterOptions(zookeeper="zk1:2181,zk2/chroot", brokers=1))

    assert cluster.zookeepers == []
    assert broker_identity(cluster, cluster.brokers[0], "/data")["zookeeper.connect"] == "zk1:2181,zk2/chroot"


def test_port_zero_is_any_port_that_is_free() -> None:
    """No port is given away twice."""
    cluster = planned(ClusterOptions(brokers=2, base_port=0, http_base_port=0, zookeeper_port=0))

    assert ports(cluster) == [(30_000, None), (30_001, 30_002), (30_003, 30_004)]


def test_a_cluster_keeps_what_it_was_given() -> None:
    """Ports and number of brokers are those of the first time, unless others are asked for."""
    first = planned(ClusterOptions(brokers=2, base_port=19092, zookeeper_port=0))

    assert ports(planned(ClusterOptions(), first)) == ports(first)
    assert ports(planned(ClusterOptions(base_port=0, zookeeper_port=0), first)) == ports(first)
    assert ports(planned(ClusterOptions(base_port=9092), first)) == [(30_000, None), (9092, 9644), (9093, 9645)]
    assert ports(planned(ClusterOptions(brokers=3), first, running=True)) == [*ports(first), (19094, 9646)]


def test_broker_options_are_those_of_the_command_that_began() -> None:
    """What is missing from a running cluster gets the options of the others; the next beginning has its own."""
    first = planned(ClusterOptions(overrides=("a=1",)))

    assert planned(ClusterOptions(), first, running=True).overrides == ("a=1",)
    assert planned(ClusterOptions(), first).overrides == ()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (ClusterOptions(base_port=19092), "--base-port"),
        (ClusterOptions(http_base_port=19092), "--http-base-port"),
        (ClusterOptions(zookeeper_port=19092), "--zookeeper-port"),
        (ClusterOptions(zookeeper="elsewhere:2181"), "--zookeeper"),
        (ClusterOptions(overrides=("a=1",)), "-X"),
    ],
)
def test_a_running_cluster_does_not_change_its_options(options: ClusterOptions, named: str) -> None:
    """The message names the option and says what to do."""
    with pytest.raises(ClusterError, match=rf"another {named}\. Stop it first with: ottla down"):
        planned(options, planned(ClusterOptions(brokers=3)), running=True)


def test_pids_go_over_into_the_plan() -> None:
    """A process that runs is found again."""
    first = planned(ClusterOptions())
    running = msgspec.structs.replace(first.brokers[0], pid=42, start_time="then")

    assert planned(ClusterOptions(), first.replacing([running]), running=True).brokers[0] == running


@pytest.mark.parametrize(
    "options",
    [
        ClusterOptions(brokers=3, base_port=2179),
        ClusterOptions(brokers=3, base_port=9643),
        ClusterOptions(brokers=3, base_port=65_535),
    ],
)
def test_ports_that_cannot_be_are_refused(options: ClusterOptions) -> None:
    """Two processes on one port, and a port past the last one."""
    with pytest.raises(OptionError, match=r"^Port "):
        planned(options)


@pytest.mark.parametrize("override", ["", "a", "=b", "a b=c", "listeners=PLAINTEXT://:1", "log.dirs=/x", "broker.id=7"])
def test_an_override_that_cannot_be_is_refused(override: str) -> None:
    """No key, or one that must differ between brokers."""
    with pytest.raises(OptionError):
        ClusterOptions(overrides=(override,))


@pytest.mark.parametrize(
    ("connect", "servers"),
    [
        ("localhost", [("localhost", 2181)]),
        ("a:1,b/c/d", [("a", 1), ("b", 2181)]),
        ("[::1]:2182,[::1]", [("::1", 2182), ("::1", 2181)]),
    ],
)
def test_a_connect_string_names_servers(connect: str, servers: list[tuple[str, int]]) -> None:
    """With and without port, chroot and brackets."""
    assert zookeeper_servers(connect) == servers


@pytest.mark.parametrize("connect", ["", "/chroot", "a:", "a:65536", "a,,b", "a:1/", "a:1//b", "a:1/ b", "::1"])
def test_what_is_no_connect_string_is_refused(connect: str) -> None:
    """A mistake is found before anything is started."""
    with pytest.raises(OptionError, match="is not HOST:PORT"):
        ClusterOptions(zookeeper=connect)


@pytest.mark.parametrize(("brokers", "replicas", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_there_are_three_replicas_of_everything_as_far_as_there_are_brokers(
    brokers: int, replicas: int, min_isr: int
) -> None:
    """A topic works on any number of brokers, and goes on when one of several is lost."""
    defaults = broker_defaults(brokers)

    assert {int(value) for key, value in defaults.items() if key.endswith("replication.factor")} == {replicas}
    assert defaults["min.insync.replicas"] == defaults["transaction.state.log.min.isr"] == str(min_isr)
    assert min_isr < replicas or brokers == 1


def test_the_brokers_of_a_host_are_one_rack() -> None:
    """One that is added to running brokers joins theirs, even if the host has another name by then."""
    first = planned(ClusterOptions(), host_name="laptop")
    assert broker_defaults(3, first.rack)["broker.rack"] == "laptop"
    assert planned(ClusterOptions(brokers=4), first, running=True, host_name="laptop.home").rack == "laptop"
    assert planned(ClusterOptions(), first, host_name="laptop.home").rack == "laptop.home"
    # Brokers of an older version run without a rack; those that are added have one.
    older = msgspec.structs.replace(first, rack=None)
    assert planned(ClusterOptions(brokers=4), older, running=True, host_name="laptop").rack == "laptop"


def test_a_console_comes_last_and_keeps_its_port() -> None:
    """Only if it is asked for; at the usual port, unless another one is asked for."""
    assert planned(ClusterOptions()).console is None
    first = planned(ClusterOptions(console=True))
    assert ports(first)[-1] == (8080, None)
    assert first.processes[-1].name == "console"
    assert ports(planned(ClusterOptions(console=True, brokers=4), first))[-1] == (8080, None)
    assert ports(planned(ClusterOptions(console=True, console_port=8090), first))[-1] == (8090, None)
    assert ports(planned(ClusterOptions(console=True, console_port=0)))[-1] == (30_000, None)
    # It is not running, so nothing is lost if it is left out.
    assert planned(ClusterOptions(), first).console is None
