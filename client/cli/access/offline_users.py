"""Write credentials directly to ZooKeeper, for brokers that log in to each other and cannot start without them.

The credentials go to /config/users/<user>, where brokers read them. A node below /config/changes notifies brokers that
are already running.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

from ottla.client.admin.security_results import ScramCredentialUpsertion, UserOutcome
from ottla.client.cli.terminal.errors import CommandError
from ottla.protocol.entity_names import sanitized
from ottla.protocol.scram import ScramCredential, salted_password

_SALT_BYTES: Final = 24
_ATTEMPTS_MAX: Final = 10


def store(connect: str, wanted: Sequence[ScramCredentialUpsertion], timeout_s: float) -> list[UserOutcome]:
    """Write the credentials of one user; CommandError if ZooKeeper cannot be reached."""
    from kazoo.client import KazooClient  # type: ignore[import-untyped]
    from kazoo.exceptions import KazooException  # type: ignore[import-untyped]
    from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]

    hosts, slash, path = connect.partition("/")
    client = KazooClient(hosts=hosts)
    try:
        client.start(timeout=timeout_s)
        chroot = f"{slash}{path}".rstrip("/")
        for each in wanted:
            _write(client, chroot, each)
    except (KazooException, KazooTimeoutError) as error:
        raise CommandError(f"ZooKeeper at {connect} failed: {error or type(error).__name__}.") from error
    finally:
        client.stop()
        client.close()
    return [UserOutcome(user) for user in dict.fromkeys(each.user for each in wanted)]


def _write(client: Any, chroot: str, wanted: ScramCredentialUpsertion) -> None:
    from kazoo.exceptions import BadVersionError, NodeExistsError

    salt = secrets.token_bytes(_SALT_BYTES) if wanted.salt is None else wanted.salt
    salted = salted_password(wanted.mechanism, wanted.password, salt, wanted.iterations)
    text = ScramCredential.derived(wanted.mechanism, salted, salt, wanted.iterations).format()
    entity = f"users/{sanitized(wanted.user)}"
    path = f"{chroot}/config/{entity}"
    client.ensure_path(f"{chroot}/config/users")
    client.ensure_path(f"{chroot}/config/changes")
    for _ in range(_ATTEMPTS_MAX):
        try:
            if client.exists(path) is None:
                client.create(path, _node({wanted.mechanism.label: text}))
            else:
                data, stat = client.get(path)
                client.set(path, _node({**_config(data, path), wanted.mechanism.label: text}), stat.version)
            break
        except (BadVersionError, NodeExistsError):
            continue
    else:
        raise CommandError(f"The options of {wanted.user} keep changing at the same time; try again.")
    note = json.dumps({"version": 2, "entity_path": entity}, separators=(",", ":")).encode()
    client.create(f"{chroot}/config/changes/config_change_", note, sequence=True)


def _node(config: dict[str, str]) -> bytes:
    return json.dumps({"version": 1, "config": config}, separators=(",", ":")).encode()


def _config(data: bytes, path: str) -> dict[str, str]:
    try:
        return dict(json.loads(data)["config"]) if data else {}
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"{path} in ZooKeeper has unexpected content; delete it first.") from None
