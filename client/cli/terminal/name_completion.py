"""Completion of names that only the cluster knows: topics, groups and brokers.

A shell asks at every press of Tab, so a cluster that does not answer soon gives no names, and no error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin

_TIMEOUT_S: Final = 2.0

Names = Callable[["Admin"], Awaitable[list[str]]]


def _completing(names: Names) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from ottla.client.cli.terminal.errors import CommandError
        from ottla.client.cli.terminal.target import Target

        given = context.params
        target = Target(
            given.get("bootstrap_server"), given.get("command_config"), tuple(given.get("overrides") or ()), _TIMEOUT_S
        )
        try:
            found = target.run(names)
        except (CommandError, OSError):
            return []
        # The last item of a list such as --brokers 1,2
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in sorted(found) if name.startswith(last)]

    return complete


async def _topics(admin: Admin) -> list[str]:
    return [each.name for each in await admin.list_topics()]


async def _groups(admin: Admin) -> list[str]:
    return [each.group_id for each in await admin.list_groups()]


async def _brokers(admin: Admin) -> list[str]:
    return [str(each.broker_id) for each in (await admin.describe_cluster()).brokers]


complete_topic = _completing(_topics)
complete_group = _completing(_groups)
complete_broker = _completing(_brokers)
