"""`ottla zookeeper` with mistakes; what it does is in tests/interop/test_secure_local_cluster.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.cli.conftest import Ottla


@pytest.mark.parametrize(
    ("options", "because", "code"),
    [
        (None, "No such file", 2),
        ("zookeeper.connect=127.0.0.1:1", "needs a login that the nodes belong to", 2),
        (
            "zookeeper.connect=127.0.0.1:1\nzookeeper.connection.timeout.ms=200\nottla.zookeeper.sasl.jaas.config="
            'org.apache.zookeeper.server.auth.DigestLoginModule required username="u" password="p";',
            "no ZooKeeper server answers at 127.0.0.1:1",
            1,
        ),
    ],
)
def test_a_migration_that_cannot_be_done_says_why(
    ottla: Ottla, tmp_path: Path, options: str | None, because: str, code: int
) -> None:
    """With the reason of the broker's process, and its exit code."""
    config = tmp_path / "server.properties"
    if options is not None:
        config.write_text(options + "\n")
    failed = ottla("zookeeper", "secure", "--config", str(config))
    assert (failed.code, because in failed.err) == (code, True), failed.err
    assert "Traceback" not in failed.err


def test_nothing_is_opened_without_a_yes(ottla: Ottla, tmp_path: Path) -> None:
    """Everybody could change the cluster then."""
    refused = ottla("zookeeper", "unsecure", "--config", str(tmp_path / "server.properties"))
    assert (refused.code, "repeat the command with --yes" in refused.err) == (2, True)
