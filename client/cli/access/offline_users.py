"""Write credentials directly to ZooKeeper, for brokers that log in to each other and cannot start without them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.client.admin.security_results import ScramCredentialUpsertion, UserOutcome
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.local_cluster.zookeeper_commands import ZooKeeperCommandError, run_in_zookeeper
from ottla.protocol.scram import ScramCredential, salted_password

_SALT_BYTES: Final = 24


def store(
    connect: str, wanted: Sequence[ScramCredentialUpsertion], timeout_s: float, config: Path | None = None
) -> list[UserOutcome]:
    """Write the credentials of one user, with the login in a broker's config; CommandError if that fails."""
    (user,) = {each.user for each in wanted}
    credentials = {each.mechanism.label: _credential(each) for each in wanted}
    overrides = [f"zookeeper.connect={connect}", f"zookeeper.connection.timeout.ms={max(1, int(timeout_s * 1000))}"]
    try:
        run_in_zookeeper("store-user", config, overrides, said=json.dumps({"user": user, "config": credentials}))
    except ZooKeeperCommandError as error:
        raise CommandError(f"ZooKeeper at {connect} failed: {error}", error.exit_code) from error
    return [UserOutcome(user)]


def _credential(wanted: ScramCredentialUpsertion) -> str:
    salt = secrets.token_bytes(_SALT_BYTES) if wanted.salt is None else wanted.salt
    salted = salted_password(wanted.mechanism, wanted.password, salt, wanted.iterations)
    return ScramCredential.derived(wanted.mechanism, salted, salt, wanted.iterations).format()
