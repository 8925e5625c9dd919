"""The pytest plugin: the fixtures as tests of others use them, and what they cost those who do not."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.kit.waiting import until

from ottla import testing
from ottla.client.admin.results import NewTopic
from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.errors import ClusterError, OptionError
from ottla.sync import Admin, Consumer, Producer
from ottla.testing import FaultCluster

RUN_TIMEOUT_S = 120


def values(cluster: FaultCluster, topic: str, count: int) -> list[bytes | None]:
    """Read so many records of a topic; fewer when no more come."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    with Consumer.from_config(config, topic, consumer_timeout_ms=10_000) as consumer:
        return [record.value for record in itertools.islice(consumer, count)]


def test_a_cluster_survives_what_a_test_does_to_it(tmp_path: Path) -> None:
    """A broker that is killed or stopped is gone until it is started; what is paused goes on where it was."""
    with FaultCluster(tmp_path, 2, {"num.partitions": "3"}) as cluster:
        assert cluster.running() == cluster.brokers == (1, 2)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert producer.partitions_for("orders") == {0, 1, 2}
            producer.send_and_wait("orders", b"before", partition=0)
            cluster.kill(2)
            assert cluster.running() == (1,)
            with pytest.raises(ClusterError, match="broker 2 is not running"):
                cluster.kill(2)
            producer.send_and_wait("orders", b"while", partition=0)
            cluster.start(2)
            cluster.pause(1)
            cluster.pause("zookeeper")
            cluster.start()
            producer.send_and_wait("orders", b"after", partition=0)
            cluster.restart(1)
        assert cluster.running() == (1, 2)
        assert values(cluster, "orders", 3) == [b"before", b"while", b"after"]
        assert "[KafkaServer id=1] started" in cluster.log(1)
        assert (cluster.data_dir(1) / "orders-0").is_dir()
        with pytest.raises(OptionError):
            cluster.kill(3)
    assert cluster.running() == ()


def leader_and_isr(admin: Admin) -> tuple[int | None, list[int]]:
    """Who leads the topic, as one of the brokers knows it; one that was not told yet has no partitions to show."""
    (topic,) = admin.describe_topics(["orders"], raise_errors=False)
    return next(((each.leader, sorted(each.isr)) for each in topic.partitions), (None, []))


def test_the_network_between_brokers_can_be_cut(tmp_path: Path) -> None:
    """A follower without its leader falls out of the ISR, a leader without ZooKeeper is replaced; both come back."""
    options = {"replica.lag.time.max.ms": "1500", "replica.fetch.wait.max.ms": "200"}
    with FaultCluster(tmp_path, 3, options) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=3)])
            leader = until(lambda: (told := leader_and_isr(admin))[1] == [1, 2, 3] and told[0])
            assert leader is not None
            # A leader that is cut off from the controller could not change the ISR.
            controller = admin.describe_cluster().controller_id
        follower = next(broker for broker in cluster.brokers if broker not in (leader, controller))
        (third,) = {1, 2, 3} - {leader, follower}
        # One that is never cut off from ZooKeeper is asked: the others may tell what was.
        asked = cluster.bootstrap_servers.split(",")[third - 1]
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer, Admin(bootstrap_servers=asked) as admin:
            cluster.partition(leader, follower)
            producer.send_and_wait("orders", b"without a follower")
            until(lambda: leader_and_isr(admin) == (leader, sorted((leader, third))))
            cluster.heal(leader, follower)
            until(lambda: leader_and_isr(admin) == (leader, [1, 2, 3]))

            cluster.partition(leader, "zookeeper")
            until(lambda: leader_and_isr(admin)[0] not in (leader, None))
            producer.send_and_wait("orders", b"under another leader")
            cluster.start()
            until(lambda: leader_and_isr(admin)[1] == [1, 2, 3])
        assert values(cluster, "orders", 2) == [b"without a follower", b"under another leader"]
        with pytest.raises(OptionError, match="from itself"):
            cluster.partition(1, 1)
        with pytest.raises(OptionError, match="not in this cluster"):
            cluster.partition(1, 9)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder for tests of somebody else."""
    options = ("filterwarnings = error", "addopts = --strict-markers -p ottla.testing", "ottla_brokers = 1")
    (tmp_path / "pytest.ini").write_text("\n".join(("[pytest]", *options)))
    return tmp_path


def run_suite(suite: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it, by itself."""
    without = [f"-pno:{plugin}" for plugin in ("randomly", "cacheprovider", "asyncio")]
    command = [sys.executable, "-m", "pytest", *without, *arguments]
    return subprocess.run(command, cwd=suite, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)


def test_tests_share_a_cluster_and_not_their_topics(suite: Path) -> None:
    """What one test leaves broken is whole for the next, its topic is gone, and nothing outlives the run."""
    (suite / "test_orders.py").write_text(
        """
import pytest
from ottla.sync import Admin

seen = []

def test_first(ottla_cluster, ottla_topic):
    seen.append((ottla_cluster, ottla_topic))
    ottla_cluster.pause(1)

@pytest.mark.ottla(brokers=1, partitions=2)
def test_second(ottla_cluster, ottla_topic):
    (cluster, topic), = seen
    assert ottla_cluster is cluster
    assert ottla_topic != topic
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert [(each.name, each.num_partitions) for each in admin.list_topics()] == [(ottla_topic, 2)]
"""
    )
    done = run_suite(suite, f"--basetemp={suite / 'run'}", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    record = ClusterDir(suite / "run" / "ottla-cluster0").read()
    assert record is not None
    assert not any(process.is_running() for process in record.processes)


def test_a_run_that_is_killed_leaves_no_processes(suite: Path) -> None:
    """The guard sees that its input ends."""
    (suite / "test_crash.py").write_text(
        """
import os, signal

def test_crash(ottla_cluster):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    done = run_suite(suite, f"--basetemp={suite / 'run'}", "-q")
    assert done.returncode == -signal.SIGKILL
    record = ClusterDir(suite / "run" / "ottla-cluster0").read()
    assert record is not None
    until(lambda: not any(process.is_running() for process in record.processes), "the processes have ended")


def test_the_plugin_costs_nothing_when_it_is_not_used(suite: Path) -> None:
    """Loading it imports no client, no event loop, and nothing that starts processes."""
    (suite / "test_modules.py").write_text(
        """
import sys

def test_modules():
    assert "ottla.testing" in sys.modules
    assert {"asyncio", "msgspec", "ottla.client", "ottla.protocol"}.isdisjoint(sys.modules)
"""
    )
    done = run_suite(suite, "-q", "-p", "no:hypothesispytest", "-p", "no:timeout")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_argument_that_the_mark_does_not_have_is_refused() -> None:
    """A typo would otherwise be a cluster of another size."""

    def collected(**arguments: int) -> None:
        mark = pytest.mark.ottla(**arguments).mark
        definition = SimpleNamespace(get_closest_marker=lambda _: mark)
        testing.pytest_generate_tests(cast(Any, SimpleNamespace(definition=definition, fixturenames=[])))

    collected(brokers=3, partitions=2)
    with pytest.raises(pytest.UsageError, match="takes brokers=N and partitions=N, not: broker"):
        collected(broker=3)
