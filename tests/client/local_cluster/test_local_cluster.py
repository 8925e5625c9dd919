"""Clusters of fake brokers: started, watched and stopped in this process."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import sys

import pytest
from tests.client.clusters import Bench
from tests.kit.waiting import until
from tests.kit.zookeeper import ZooKeeperServer

from ottla.client.local_cluster.cluster_dir import LOCK_NAME, ClusterDir
from ottla.client.local_cluster.errors import ClusterError, InterruptedStartError, PortTakenError, StartFailedError
from ottla.client.local_cluster.local_cluster import _with_free_console_port
from ottla.client.local_cluster.plan import ClusterOptions, plan
from ottla.client.local_cluster.record import ProcessRecord, Role
from ottla.client.local_cluster.restart_mark import new_mark, read_mark, remove_mark, write_mark
from ottla.client.local_cluster.status import ProcessState


def test_a_cluster_starts_and_stops(bench: Bench) -> None:
    """Every broker listens on its own ports when the start returns, and is gone when the stop does."""
    cluster = bench.cluster()

    started = cluster.start(bench.options(2))

    assert [process.id for process in started] == [1, 2]
    statuses = cluster.statuses()
    assert [status.state for status in statuses] == [ProcessState.RUNNING, ProcessState.RUNNING]
    assert len({port for status in statuses for port in (status.port, status.http_port)}) == 4
    for status in statuses:
        socket.create_connection((status.host, status.port)).close()

    stopped = cluster.stop()

    assert [process.pid for process in stopped] == [status.pid for status in statuses]
    assert not any(process.is_running() for process in stopped)
    assert [status.state for status in cluster.statuses()] == [ProcessState.STOPPED, ProcessState.STOPPED]
    assert [status.pid for status in cluster.statuses()] == [None, None]


def test_a_cluster_that_runs_is_left_as_it_is(bench: Bench) -> None:
    """A second start finds nothing to do."""
    bench.cluster().start(bench.options(2))
    before = bench.cluster().statuses()

    assert bench.cluster().start(bench.options()) == []
    assert bench.cluster().statuses() == before


def test_only_what_is_missing_is_started_again(bench: Bench) -> None:
    """A broker that was killed comes back on its ports, with a new pid; the other one is not touched."""
    cluster = bench.cluster()
    cluster.start(bench.options(2, "a.b=c"))
    before = cluster.statuses()
    _kill(cluster.record().brokers[1])
    until(lambda: [status.state for status in cluster.statuses()] == [ProcessState.RUNNING, ProcessState.DIED])

    started = cluster.start(bench.options())

    after = cluster.statuses()
    assert [process.id for process in started] == [2]
    assert after[0] == before[0]
    assert (after[1].port, after[1].http_port) == (before[1].port, before[1].http_port)
    assert after[1].pid not in (None, before[1].pid)
    assert cluster.record().overrides == ("a.b=c",)


def test_a_cluster_that_runs_can_grow(bench: Bench) -> None:
    """More brokers than before are added to those that run."""
    bench.cluster().start(bench.options(1))

    assert [process.id for process in bench.cluster().start(bench.options(3))] == [2, 3]


def test_a_cluster_that_was_stopped_can_grow(bench: Bench) -> None:
    """The new broker has ports of its own, and is part of the cluster the next time."""
    bench.cluster().start(bench.options(3))
    before = [(status.port, status.http_port) for status in bench.cluster().statuses()]
    bench.cluster().stop()

    assert [process.id for process in bench.cluster().start(bench.options(4))] == [1, 2, 3, 4]

    statuses = bench.cluster().statuses()
    assert [(status.port, status.http_port) for status in statuses[:3]] == before
    assert len({port for status in statuses for port in (status.port, status.http_port)}) == 8
    assert bench.cluster().start(bench.options()) == []


def test_brokers_know_how_many_replicas_there_can_be(bench: Bench) -> None:
    """In the config that each of them is started with."""
    bench.cluster().start(bench.options(1))
    bench.cluster().start(bench.options(3))

    alone, added = ((bench.path / name / "server.properties").read_text() for name in ("broker-1", "broker-3"))
    assert "default.replication.factor=1\n" in alone
    assert "default.replication.factor=3\n" in added
    assert "min.insync.replicas=2\n" in added


def test_brokers_are_in_the_rack_of_their_host_unless_the_user_names_another(bench: Bench) -> None:
    """The user's option is the one that counts, and nobody refuses it."""
    config = bench.path / "broker-1" / "server.properties"
    bench.cluster().start(bench.options(1))
    assert f"broker.rack={socket.gethostname()}\n" in config.read_text()
    bench.cluster().stop()

    bench.cluster().start(bench.options(1, "broker.rack=zone-a"))

    assert "broker.rack=zone-a\n" in config.read_text()
    assert socket.gethostname() not in config.read_text()


def test_a_broker_is_restarted_alone(bench: Bench) -> None:
    """On its ports and with another pid; watchers know that it was asked to stop."""
    cluster, watcher = bench.cluster(), bench.cluster()
    cluster.start(bench.options(2))
    watcher.departures()
    before = cluster.statuses()

    restarted = cluster.restart(2, lambda: None)

    after = cluster.statuses()
    assert after[0] == before[0]
    assert (after[1].port, after[1].state, after[1].pid) == (before[1].port, ProcessState.RUNNING, restarted.pid)
    assert after[1].pid != before[1].pid
    assert [(each.process.id, each.asked) for each in watcher.departures()] == [(2, True)]
    with pytest.raises(ClusterError, match="has no broker 3"):
        cluster.restart(3, lambda: None)


def test_a_broker_that_must_not_stop_is_left_alone(bench: Bench) -> None:
    """The question is asked last, while no other command can stop anything; a broker that is down is started anyway."""
    cluster = bench.cluster()
    cluster.start(bench.options(2))
    before = cluster.statuses()

    def may_not_stop() -> None:
        with pytest.raises(ClusterError, match="Another command"):
            bench.cluster(start_timeout_s=0).stop()
        raise LookupError("it is needed")

    with pytest.raises(LookupError):
        cluster.restart(1, may_not_stop)
    assert cluster.statuses() == before

    _kill(cluster.record().brokers[0])
    until(lambda: cluster.statuses()[0].state is ProcessState.DIED)
    assert cluster.restart(1, may_not_stop).is_running()


def test_a_restart_is_continued_with_the_brokers_that_are_still_the_same(bench: Bench) -> None:
    """One that runs as another process is done; one that is down is not."""
    cluster = bench.cluster()
    cluster.start(bench.options(2))
    write_mark(cluster.directory, new_mark(cluster.record().brokers, now_ms=5))
    cluster.restart(1, lambda: None)

    mark = read_mark(cluster.directory)

    assert mark is not None
    assert (mark.began_ms, [mark.is_done(each) for each in cluster.record().brokers]) == (5, [True, False])
    cluster.stop()
    assert [mark.is_done(each) for each in cluster.record().brokers] == [False, False]
    (cluster.directory.path / "rolling-restart.json").write_text("{}")
    assert read_mark(cluster.directory) is None
    remove_mark(cluster.directory)
    assert read_mark(cluster.directory) is None


def test_the_death_of_a_process_is_noticed_once(bench: Bench) -> None:
    """The one that died is named with the way it ended; the others keep running."""
    cluster = bench.cluster()
    cluster.start(bench.options(2))
    assert cluster.departures() == []
    died = cluster.record().brokers[0]
    _kill(died)
    until(lambda: cluster.statuses()[0].state is ProcessState.DIED)

    departures = cluster.departures()

    assert [(each.process.id, each.how, each.asked) for each in departures] == [(1, "killed by SIGKILL", False)]
    assert cluster.departures() == []
    assert cluster.statuses()[1].state is ProcessState.RUNNING
    assert cluster.is_running()


def test_a_stop_by_somebody_else_is_no_death(bench: Bench) -> None:
    """Whoever watches a cluster can tell that its processes were stopped on purpose."""
    cluster = bench.cluster()
    cluster.start(bench.options(1))

    bench.cluster().stop()

    assert [(each.process.id, each.asked) for each in cluster.departures()] == [(1, True)]
    assert not cluster.is_running()


def test_a_broker_that_does_not_stop_is_killed(bench: Bench) -> None:
    """SIGTERM comes first, SIGKILL after the deadline, and the report says so."""
    cluster = bench.cluster(stop_timeout_s=0.05)
    cluster.start(bench.options(1, "fake=stubborn"))
    process = cluster.record().brokers[0]

    cluster.stop()

    assert not process.is_running()
    assert bench.reports[-2:] == [
        f"broker 1 (pid {process.pid}) did not stop in time and is killed",
        "broker 1 killed",
    ]


def test_a_user_who_cannot_wait_need_not(bench: Bench) -> None:
    """A signal while a cluster stops kills what is left of it long before the deadline."""
    bench.cluster().start(bench.options(1, "fake=stubborn"))

    bench.cluster(pause=lambda seconds: True).stop()

    assert bench.reports[-1] == "broker 1 killed"


def test_a_broker_that_fails_to_start_takes_back_the_start(bench: Bench) -> None:
    """The error has the end of the broker's log, and nothing is left running."""
    cluster = bench.cluster()

    with pytest.raises(StartFailedError, match=r"broker 2 ended before it was ready \(exit code 3\)") as raised:
        cluster.start(bench.options(2, "fake=fails:2"))

    assert "the fake broker fails, as it was told" in str(raised.value)
    assert str(bench.path / "broker-2" / "broker.log") in str(raised.value)
    assert [status.state for status in cluster.statuses()] == [ProcessState.STOPPED, ProcessState.STOPPED]


def test_a_failed_start_leaves_alone_what_ran_before(bench: Bench) -> None:
    """Only what this start has started is taken back."""
    cluster = bench.cluster()
    cluster.start(bench.options(2))
    _kill(cluster.record().brokers[1])
    until(lambda: cluster.statuses()[1].state is ProcessState.DIED)
    with (
        socket.create_server(("127.0.0.1", cluster.record().brokers[1].port)),
        pytest.raises(PortTakenError, match="for broker 2 is in use"),
    ):
        cluster.start(bench.options())

    assert cluster.statuses()[0].state is ProcessState.RUNNING


def test_listening_is_not_enough_to_be_ready(bench: Bench) -> None:
    """A broker that never says that it has started is given up after the deadline."""
    with pytest.raises(StartFailedError, match="broker 1 was not ready in 0 s"):
        bench.cluster(start_timeout_s=0.2).start(bench.options(1, "fake=silent"))

    assert not bench.cluster().is_running()


def test_a_start_can_be_interrupted(bench: Bench) -> None:
    """A signal before everything is ready stops what was started."""
    with pytest.raises(InterruptedStartError):
        bench.cluster(pause=lambda seconds: True).start(bench.options(2, "fake=silent"))

    assert not bench.cluster().is_running()


def test_a_start_waits_for_the_one_before_it(bench: Bench) -> None:
    """Two commands never start the same processes: the second one waits, and is told when that takes too long."""
    directory = ClusterDir(bench.path)
    with (
        directory.locked(0, lambda seconds: False),
        pytest.raises(ClusterError, match="Another command is still starting or stopping the cluster"),
    ):
        bench.cluster(start_timeout_s=0.1).start(bench.options(1))

    assert (bench.path / LOCK_NAME).exists()
    assert directory.read() is None


def test_a_pid_that_was_used_again_is_not_touched(bench: Bench) -> None:
    """A process with the recorded pid that started at another time is somebody else."""
    cluster = bench.cluster()
    cluster.start(bench.options(1))
    cluster.stop()
    record = cluster.record()
    stale = ProcessRecord(
        role=Role.BROKER, id=1, host="127.0.0.1", port=1, log="", pid=os.getpid(), start_time="an earlier boot 17"
    )
    cluster.directory.write(record.replacing([stale]))

    assert cluster.statuses()[0].state is ProcessState.DIED
    assert cluster.stop() == []


def test_no_zookeeper_at_the_address_is_said_at_once(bench: Bench) -> None:
    """The brokers are not even started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = f"127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(ClusterError, match=f"No ZooKeeper answers at {gone}"):
        bench.cluster().start(ClusterOptions(brokers=1, base_port=0, http_base_port=0, zookeeper=gone))

    assert ClusterDir(bench.path).read() is None


def test_a_damaged_record_is_a_clear_error(bench: Bench) -> None:
    """A file that is not ours raises no other exception."""
    bench.path.mkdir()
    (bench.path / "cluster.json").write_text('{"processes": 7}')

    with pytest.raises(ClusterError, match=r"cluster\.json is damaged"):
        bench.cluster().statuses()
    (bench.path / "cluster.json").unlink()


@pytest.mark.usefixtures("zookeeper_server")
def test_the_embedded_zookeeper_comes_first_and_goes_last(bench: Bench) -> None:
    """Brokers are given the address of the ZooKeeper that was started for them, and stop before it."""
    cluster = bench.cluster()

    cluster.start(ClusterOptions(brokers=1, base_port=0, http_base_port=0, zookeeper_port=0))

    statuses = cluster.statuses()
    assert [(status.role, status.id, status.state) for status in statuses] == [
        (Role.ZOOKEEPER, 0, ProcessState.RUNNING),
        (Role.BROKER, 1, ProcessState.RUNNING),
    ]
    assert statuses[0].http_port is None
    config = (bench.path / "broker-1" / "server.properties").read_text()
    assert f"zookeeper.connect=127.0.0.1:{statuses[0].port}\n" in config
    bench.reports.clear()

    cluster.stop()

    assert bench.reports == ["broker 1 stopped", "ZooKeeper stopped"]


def test_a_zookeeper_that_was_killed_is_started_again_alone(bench: Bench, zookeeper_server: ZooKeeperServer) -> None:
    """The broker keeps running meanwhile, and the new one has the port of the old one."""
    cluster = bench.cluster()
    cluster.start(ClusterOptions(brokers=1, base_port=0, http_base_port=0, zookeeper_port=0))
    before = cluster.statuses()
    assert before[0].port != zookeeper_server.port
    _kill(cluster.record().zookeepers[0])
    until(lambda: cluster.statuses()[0].state is ProcessState.DIED)

    started = cluster.start(ClusterOptions())

    assert [(process.role, process.port) for process in started] == [(Role.ZOOKEEPER, before[0].port)]
    assert cluster.statuses()[1] == before[1]


def _kill(process: ProcessRecord) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)


def test_a_console_gets_another_port_if_its_own_is_taken() -> None:
    """Nobody depends on the port, so it is no reason to fail."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = listening.getsockname()[1]
        wanted = ClusterOptions(console=True, console_port=taken)
        planned = plan(wanted, None, running=False, free_port=lambda _: 1, host_name="here")
        free = _with_free_console_port(planned)
    assert free.console is not None
    assert free.console.port not in (taken, *(broker.port for broker in free.brokers))


def test_a_console_that_does_not_start_does_not_stop_the_cluster(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers run, and the reason is reported."""
    failing = (sys.executable, "-c", "import sys; sys.exit('no console today')")
    monkeypatch.setattr("ottla.client.local_cluster.launcher.CONSOLE_COMMAND", failing)
    cluster = bench.cluster()
    options = dataclasses.replace(bench.options(1), console=True, console_port=0)
    cluster.start(options)
    assert [(each.role, each.state) for each in cluster.statuses()] == [
        (Role.BROKER, ProcessState.RUNNING),
        (Role.CONSOLE, ProcessState.STOPPED),
    ]
    assert any("no console today" in line for line in bench.reports)
