"""Disks that fill up under load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.cluster import BROKER_IDS, Cluster
from tests.faults.disks import Disks
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import replicas_led_by
from tests.kit.apache_kafka import UnavailableError, skip_or_fail
from tests.kit.waiting import until

MIB = 1024 * 1024
# Of disks of 256 MiB.
WATERMARK = 64 * MIB


class SmallDisks:
    """A cluster whose brokers have small disks of their own."""

    def __init__(self, folder: Path, protocol: str) -> None:
        self._disks = Disks(folder)
        options = ("ottla.log.min.free.percent=0", f"ottla.log.min.free.bytes={WATERMARK}")
        self.cluster = Cluster(folder, *options, protocol=protocol)
        self.paths: dict[int, Path] = {}
        try:
            for broker, process in self.cluster.brokers.items():
                self.paths[broker] = self._disks.new(f"disk-{broker}")
                process.log_dir = self.paths[broker] / "data"
            self.cluster.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End everything."""
        self.cluster.close()
        self._disks.close()

    def fill(self, broker: int, left_bytes: int) -> Path:
        """Fill the disk of a broker with something else, until only so much is left; return that."""
        ballast = self.paths[broker] / "ballast"
        with ballast.open("wb") as file:
            space = os.statvfs(self.paths[broker])
            os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - left_bytes)
        return ballast


@pytest.fixture
def small_disks(tmp_path: Path, protocol: str) -> Iterator[SmallDisks]:
    """A cluster with small disks."""
    try:
        made = SmallDisks(tmp_path, protocol)
    except UnavailableError as error:
        skip_or_fail(error)
    with closing(made):
        yield made


@pytest.mark.long_faults
def test_f46_a_follower_without_space_leaves_the_isr_and_comes_back(small_disks: SmallDisks, tmp_path: Path) -> None:
    """Producers go on with the replicas that have space, and the follower copies the rest when it has some again."""
    cluster = small_disks.cluster
    experiment = Experiment(cluster, tmp_path)
    with closing(experiment):
        experiment.start(replicas_led_by(1, 2, 1))
        with experiment.fault("fill the disk of a follower", "broker 3") as fault:
            ballast = small_disks.fill(3, WATERMARK // 2 - 8 * MIB)
            for partition in range(3):
                experiment.wait_for(lambda state: set(state.isr) == {1, 2}, partition)
            fault.proof = "it left the ISR of all partitions"
            experiment.wait_for_acks(20)
            assert "followers copy no records to it" in cluster.brokers[3].output()
            ballast.unlink()
            experiment.wait_for_full_isr()
        check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f47_a_leader_without_space_refuses_records_until_it_has_some(small_disks: SmallDisks, tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, and producers go on by themselves."""
    cluster = small_disks.cluster
    experiment = Experiment(cluster, tmp_path)
    with closing(experiment):
        experiment.start(replicas_led_by(1, 1, 1))
        with experiment.fault("fill the disk of the leader", "broker 1") as fault:
            ballast = small_disks.fill(1, WATERMARK - 8 * MIB)
            until(lambda: "no records of producers are accepted" in cluster.brokers[1].output(), "the disk is low")
            fault.proof = "it refuses records"
            ballast.unlink()
            experiment.wait_for_acks(20)
        assert {experiment.state(partition).leader for partition in range(3)} == {BROKER_IDS[0]}
        check_valid(experiment.finish())
