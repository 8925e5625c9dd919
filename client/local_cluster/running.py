"""Which cluster of this machine clients mean if they are not told."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ottla.client.local_cluster.cluster_dir import RECORD_NAME, ClusterDir
from ottla.client.local_cluster.errors import ClusterError


class RunningCluster(NamedTuple):
    """A cluster that `ottla up` has started: how to reach it."""

    bootstrap_servers: str
    # Options that clients need, if the cluster is secure.
    client_properties: Path | None


def running_cluster(directory: Path) -> RunningCluster | None:
    """Return the cluster in a directory if one of its brokers is running, whatever its ports; else None."""
    if not (directory / RECORD_NAME).exists():
        return None
    found = ClusterDir(directory)
    try:
        record = found.read()
    except ClusterError:
        return None
    if record is None or not any(broker.is_running() for broker in record.brokers):
        return None
    # A broker that is down may be back in a moment, so all of them are named.
    return RunningCluster(record.bootstrap_servers, found.security.client_properties if record.secure else None)
