"""`ottla token`: delegation tokens, with which programs log in as a user for a limited time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ottla.client.cli.records.offsets import duration_ms
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.output import confirm
from ottla.client.cli.terminal.target import Target, command
from ottla.client.cli.terminal.times import local_time

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.security_results import DelegationTokenDescription

app = noun_app("token")

_TokenId = Annotated[str, Argument(metavar="TOKEN", help="Id of the token, as `ottla token list` shows it.")]
_HEADINGS = ("TOKEN", "OWNER", "RENEWERS", "EXPIRES", "RENEWABLE UNTIL")


@command(app, "list")
def list_tokens(
    target: Target,
    owners: Annotated[
        list[str] | None, Option("--owner", metavar="USER", help="Only tokens of this user; can be repeated.")
    ] = None,
) -> None:
    """List delegation tokens that you may see.

    JSON: token_id, owner, requester, renewers, issue_timestamp, expiry_timestamp, max_timestamp, hmac.

    \b
    Examples:
      ottla token list
      ottla token list --owner alice --format json
    """
    wanted = None if owners is None else [_principal(owner) for owner in owners]
    found = target.run(lambda admin: admin.describe_delegation_tokens(wanted))
    target.show(_HEADINGS, [_row(token) for token in found], [token.to_dict() for token in found])


@command(app)
def create(
    target: Target,
    owner: Annotated[
        str | None, Option(metavar="USER", help="For this user, instead of yourself; needs a right.")
    ] = None,
    renewers: Annotated[
        list[str] | None, Option("--renewer", metavar="USER", help="Who may renew it, too; can be repeated.")
    ] = None,
    lifetime: Annotated[
        str | None, Option(metavar="SPAN", help="For how long it can be renewed at most: 90m, 12h, 7d.")
    ] = None,
) -> None:
    """Create a delegation token. Programs log in with its id as user name and its HMAC as password.

    In a client's options: sasl.mechanism=SCRAM-SHA-512, sasl.username=TOKEN, sasl.password=HMAC,
    sasl.scram.token.auth=true.

    JSON: token_id, owner, requester, renewers, issue_timestamp, expiry_timestamp, max_timestamp, hmac.

    \b
    Examples:
      ottla token create
      ottla token create --renewer scheduler --lifetime 2d --format json
    """
    lifetime_ms = -1 if lifetime is None else duration_ms(lifetime)
    for_owner = None if owner is None else _principal(owner)
    by = [_principal(renewer) for renewer in renewers or ()]
    token = target.change(
        lambda admin: admin.create_delegation_token(owner=for_owner, renewers=by, max_lifetime_ms=lifetime_ms)
    )
    target.show((*_HEADINGS, "HMAC"), [(*_row(token), token.hmac)], [token.to_dict()])


@command(app)
def renew(
    target: Target,
    token: _TokenId,
    period: Annotated[
        str | None,
        Option(metavar="SPAN", help="How long it lasts from now: 90m, 12h."),
    ] = None,
) -> None:
    """Have a token last longer.

    JSON: token_id, expiry_timestamp.

    \b
    Examples:
      ottla token renew 8x3hPzNqTZyYyQ5V0nS1fg
      ottla token renew 8x3hPzNqTZyYyQ5V0nS1fg --period 12h
    """
    period_ms = -1 if period is None else duration_ms(period)

    async def work(admin: Admin) -> int:
        return await admin.renew_delegation_token(await _hmac(admin, token), period_ms=period_ms)

    _show_expiry(target, token, target.change(work))


@command(app)
def expire(
    target: Target,
    token: _TokenId,
    after: Annotated[str | None, Option(metavar="SPAN", help="End it later: 10m, 2h.")] = None,
    yes: YesOption = False,
) -> None:
    """End a token, at once or after a time. Programs that have logged in with it stay connected until it would expire.

    JSON: token_id, expiry_timestamp.

    \b
    Examples:
      ottla token expire 8x3hPzNqTZyYyQ5V0nS1fg
      ottla token expire 8x3hPzNqTZyYyQ5V0nS1fg --after 10m --yes
    """
    period_ms = -1 if after is None else duration_ms(after)
    confirm(f"End token {token}?", yes)

    async def work(admin: Admin) -> int:
        return await admin.expire_delegation_token(await _hmac(admin, token), period_ms=period_ms)

    _show_expiry(target, token, target.change(work))


async def _hmac(admin: Admin, token_id: str) -> str:
    """Return the HMAC of a token. It is looked up, because other users can see the arguments of a command."""
    for token in await admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token.hmac
    raise CommandError(f"There is no token {token_id} that you may see. `ottla token list` shows those that you may.")


def _show_expiry(target: Target, token_id: str, expiry_ms: int) -> None:
    item = {"token_id": token_id, "expiry_timestamp": expiry_ms}
    target.show(("TOKEN", "EXPIRES"), [(token_id, local_time(expiry_ms))], [item])


def _row(token: DelegationTokenDescription) -> tuple[object, ...]:
    times = (local_time(token.expiry_timestamp), local_time(token.max_timestamp))
    return token.token_id, token.owner, token.renewers, *times


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"
