"""`ottla user`: users that log in with SCRAM, and their passwords."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ottla.client.cli.access.passwords import PasswordFileOption, new_password
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.outcomes import show_outcomes
from ottla.client.cli.terminal.output import confirm
from ottla.client.cli.terminal.target import Target, command
from ottla.protocol.scram import ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.security_results import UserOutcome, UserScramCredentials

app = noun_app("user")

_Users = Annotated[list[str], Argument(metavar="USER...", help="Names of users.")]
_User = Annotated[str, Argument(metavar="USER", help="Name of the user.")]
_Mechanisms = Annotated[
    list[str] | None,
    Option("--mechanism", "-m", metavar="NAME", help="SCRAM-SHA-256 or SCRAM-SHA-512; can be repeated."),
]
_Iterations = Annotated[
    int, Option(min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="Cost of trying a password; more is safer.")
]
_ZooKeeper = Annotated[
    str | None,
    Option("--zookeeper", metavar="HOST:PORT/PATH", help="Write to this ZooKeeper while no broker is running."),
]
_ZooKeeperConfig = Annotated[
    Path | None,
    Option(
        "--zookeeper-config", metavar="FILE", help="server.properties of a broker, with its login to that ZooKeeper."
    ),
]


@command(app, "list")
def list_users(
    target: Target, users: Annotated[list[str] | None, Argument(metavar="USER...", help="Only these.")] = None
) -> None:
    """List users that have a SCRAM credential, with their mechanisms.

    JSON: user, credentials (mechanism, iterations), error.

    \b
    Examples:
      ottla user list
      ottla user list alice --format json
    """
    found = target.run(lambda admin: admin.describe_user_scram_credentials(users or None))
    target.show(
        ("USER", "MECHANISM", "ITERATIONS"),
        [(each.user, info.mechanism, info.iterations) for each in found for info in each.credentials],
        [each.to_dict() for each in found],
    )


@command(app)
def create(
    target: Target,
    user: _User,
    mechanisms: _Mechanisms = None,
    iterations: _Iterations = ITERATIONS_DEFAULT,
    password_file: PasswordFileOption = None,
    zookeeper: _ZooKeeper = None,
    zookeeper_config: _ZooKeeperConfig = None,
) -> None:
    """Create a user. The command asks for the password, or reads it from OTTLA_PASSWORD or a file.

    The password is salted and hashed here; it is not sent. With --zookeeper the user exists before the first broker
    starts. Brokers that log in to each other with SCRAM need that.

    JSON: user, error.

    \b
    Examples:
      ottla user create alice
      ottla user create alice --mechanism SCRAM-SHA-256 --password-file secret.txt
      ottla user create broker --zookeeper localhost:2181/ottla
      ottla user create broker --zookeeper zk:2281 --zookeeper-config server.properties
    """
    if zookeeper_config is not None and zookeeper is None:
        raise CommandError("--zookeeper-config has the login to the ZooKeeper in --zookeeper.", 2)
    wanted = _mechanisms(mechanisms)
    if zookeeper is None and any(_has(each, wanted) for each in _described(target, user)):
        raise CommandError(f"User {user} already exists. `ottla user update {user}` sets a new password.")
    _set(target, user, wanted, iterations, password_file, zookeeper, "created", zookeeper_config)


@command(app)
def update(
    target: Target,
    user: _User,
    mechanisms: _Mechanisms = None,
    iterations: _Iterations = ITERATIONS_DEFAULT,
    password_file: PasswordFileOption = None,
) -> None:
    """Set a new password for a user. Open connections stay open.

    JSON: user, error.

    \b
    Examples:
      ottla user update alice
      ottla user update alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512
    """
    known = [info.mechanism for each in _described(target, user) for info in each.credentials]
    if not known:
        raise CommandError(f"There is no user {user}. `ottla user create {user}` creates it.")
    _set(target, user, _mechanisms(mechanisms or known), iterations, password_file, None, "updated")


@command(app)
def delete(target: Target, users: _Users, mechanisms: _Mechanisms = None, yes: YesOption = False) -> None:
    """Delete users, so that they can no longer log in. Their ACLs and quotas stay.

    JSON: user, error.

    \b
    Examples:
      ottla user delete alice
      ottla user delete alice bob --yes
      ottla user delete alice --mechanism SCRAM-SHA-256 --yes
    """
    from ottla.client.admin.security_results import ScramCredentialDeletion

    only = None if mechanisms is None else {each.label for each in _mechanisms(mechanisms)}
    found = target.run(lambda admin: admin.describe_user_scram_credentials(users))
    confirm(f"Delete {', '.join(users)}?", yes)
    deletions = [
        ScramCredentialDeletion(each.user, ScramMechanism.of(info.mechanism))
        for each in found
        for info in each.credentials
        if only is None or info.mechanism in only
    ]
    results = target.change(lambda admin: admin.alter_user_scram_credentials(deletions, raise_errors=False))
    show_outcomes(target, "USER", [(each.user, each) for each in results], "deleted")


def _mechanisms(names: list[str] | None) -> list[ScramMechanism]:
    try:
        return [ScramMechanism.of(name.upper()) for name in names or [ScramMechanism.SCRAM_SHA_512.label]]
    except ValueError as error:
        raise CommandError(f"{error}; there are {', '.join(each.label for each in ScramMechanism)}.", 2) from error


def _described(target: Target, user: str) -> tuple[UserScramCredentials, ...]:
    found = target.run(lambda admin: admin.describe_user_scram_credentials([user], raise_errors=False))
    return tuple(each for each in found if each.error is None)


def _has(found: UserScramCredentials, wanted: list[ScramMechanism]) -> bool:
    return any(info.mechanism == each.label for info in found.credentials for each in wanted)


def _set(
    target: Target,
    user: str,
    mechanisms: list[ScramMechanism],
    iterations: int,
    password_file: Path | None,
    zookeeper: str | None,
    done: str,
    zookeeper_config: Path | None = None,
) -> None:
    from ottla.client.admin.security_results import ScramCredentialUpsertion

    password = new_password(user, password_file)
    wanted = [ScramCredentialUpsertion(user, password, mechanism, iterations) for mechanism in mechanisms]
    results: Any
    if zookeeper is not None:
        from ottla.client.cli.access.offline_users import store

        results = store(zookeeper, wanted, target.timeout_s, zookeeper_config)
    else:

        async def work(admin: Admin) -> tuple[UserOutcome, ...]:
            return await admin.alter_user_scram_credentials(wanted, raise_errors=False)

        results = target.change(work)
    show_outcomes(target, "USER", [(each.user, each) for each in results], done)
