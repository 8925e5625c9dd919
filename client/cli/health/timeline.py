"""The rebalances of a group, from its coordinator's HTTP page `/groups/<id>`."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from typing import Any, Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource
from ottla.client.cli.health.http_pages import LISTENER, TOKEN_VARIABLE, UntrustedHostError, get_page, page_url
from ottla.client.cli.terminal.errors import CommandError
from ottla.protocol.config_resources import ConfigResourceType

_TIMEOUT_S: Final = 10.0
_PAGE_BYTES_MAX: Final = 16 * 1024 * 1024


async def rebalances(admin: Admin, group: str) -> list[dict[str, Any]]:
    """Return the rebalances, oldest first; CommandError if the page cannot be read."""
    (described,) = await admin.describe_groups([group])
    coordinator = described.coordinator
    (configs,) = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.BROKER, str(coordinator))], names=[LISTENER]
    )
    listener = next((each.value for each in configs.entries if each.name == LISTENER), None)
    if not listener:
        raise CommandError(f"Broker {coordinator} does not serve HTTP: set {LISTENER}.")
    path = f"/groups/{urllib.parse.quote(group, safe='')}"
    url = page_url(listener, admin.cluster.brokers[coordinator].host, path)
    named = [address.host for address in admin.cluster.settings.addresses]
    try:
        page = await asyncio.to_thread(_get, url, named)
        found: list[dict[str, Any]] = json.loads(page)["rebalances"]
    except UntrustedHostError as error:
        raise CommandError(
            f"Broker {coordinator} serves HTTP at {urllib.parse.urlsplit(url).hostname}, which is not one of your "
            f"bootstrap servers, so it does not get the token in {TOKEN_VARIABLE}. Add it to -b if you trust it."
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise CommandError(
            f"Cannot read {url}: {error}. The HTTP port may be closed to this host, or require a token: "
            f"set it in {TOKEN_VARIABLE}."
        ) from error
    return found


def _get(url: str, named: list[str]) -> bytes:
    with get_page(url, _TIMEOUT_S, token_for=named) as response:
        return response.read(_PAGE_BYTES_MAX)
