"""Clusters that the fault tests of a worker use one after the other, because starting one takes seconds.

A test is lent a whole cluster and may harm it. Afterwards the cluster is restored; where that fails, or the test
failed, the cluster is closed and the next test gets a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.cluster import HOST_NAMES, Cluster
from tests.faults.namespaces import NamespaceNetwork
from tests.kit.apache_kafka import UnavailableError, skip_or_fail


@dataclass(frozen=True, slots=True)
class Kind:
    """What tests choose: what the listeners speak, and whether every broker is on a host of its own."""

    protocol: str
    is_networked: bool = False


class SharedClusters:
    """At most one cluster of each kind, used by one test at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: dict[Kind, Cluster] = {}
        self._made = 0

    @contextmanager
    def lend(self, kind: Kind) -> Iterator[Cluster]:
        """Give a running cluster, and take it back restored; an error in the block closes it."""
        cluster = self._idle.pop(kind, None) or self._start(kind)
        try:
            yield cluster
            cluster.restore()
        except BaseException:
            cluster.close()
            raise
        self._idle[kind] = cluster

    def close(self) -> None:
        """End all clusters."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _start(self, kind: Kind) -> Cluster:
        self._made += 1
        folder = self._folder / f"cluster-{self._made}"
        folder.mkdir()
        network = NamespaceNetwork(folder, HOST_NAMES) if kind.is_networked else None
        cluster = Cluster(folder, network=network, protocol=kind.protocol)
        try:
            cluster.start()
        except BaseException:
            cluster.close()
            raise
        return cluster


class _SpentError(Exception):
    """A test failed on the cluster. Nobody knows what is wrong with it, so no other test gets it."""


def lent(request: pytest.FixtureRequest, kind: Kind) -> Iterator[Cluster]:
    """Lend a cluster to a test, for fixtures; the test is skipped where there cannot be one."""
    clusters: SharedClusters = request.getfixturevalue("shared_clusters")
    failed_before = request.session.testsfailed
    try:
        with clusters.lend(kind) as cluster:
            yield cluster
            if request.session.testsfailed > failed_before:
                raise _SpentError
    except UnavailableError as error:
        skip_or_fail(error)
    except _SpentError:
        pass
