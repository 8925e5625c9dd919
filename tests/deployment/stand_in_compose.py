"""Passes for `docker compose` where there is no Docker: the services are the brokers of a cluster of `ottla up`.

    COMPOSE="python tests/deployment/stand_in_compose.py DIR" scripts/compose_rolling_restart

It knows what that script asks for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.local_cluster import LocalCluster

RUN = ["run", "--rm", "--no-deps", "-T", "--entrypoint", "ottla"]
UP = ["up", "--detach", "--no-deps", "--force-recreate"]


def main(directory: str, *words: str) -> None:
    """Do what compose would do."""
    cluster = LocalCluster(ClusterDir(Path(directory)))
    brokers = {f"broker-{each.id}": each for each in cluster.record().brokers}
    if words == ("config", "--services"):
        for name in ("zookeeper", *brokers, "console"):
            sys.stdout.write(f"{name}\n")
    elif list(words[: len(RUN)]) == RUN:
        service, *line = words[len(RUN) :]
        environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": brokers[service].address}
        os.execve(sys.executable, [sys.executable, "-P", "-m", "ottla.client.cli", *line], environment)
    elif list(words[: len(UP)]) == UP:
        (service,) = words[len(UP) :]
        cluster.restart(brokers[service].id, lambda: None)
    else:
        sys.exit(f"unknown to this stand-in: {words}")


if __name__ == "__main__":
    main(*sys.argv[1:])
