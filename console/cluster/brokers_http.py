"""Reads the HTTP ports of brokers, for what Kafka's protocol cannot tell.

The address of a port is an option of its broker, which is asked for with the rights of the user. So a user who may not
see the options of brokers does not see what their HTTP ports tell, either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource
from ottla.client.cli.health.http_pages import (
    LISTENER,
    TOKEN_VARIABLE,
    UntrustedHostError,
    authorization,
    page_url,
)
from ottla.client.errors import KafkaError
from ottla.console.cluster.fresh import Fresh
from ottla.protocol.config_resources import ConfigResourceType

_TIMEOUT_S: Final = 3.0
_PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
_LISTENERS_AGE_S: Final = 30.0


class PageError(Exception):
    """A page of a broker cannot be read; the text says why."""


class BrokersHttp:
    """The HTTP ports of the brokers of one cluster, for one user."""

    def __init__(self, admin: Admin, http: aiohttp.ClientSession) -> None:
        self._admin = admin
        self._http = http
        self._listeners = Fresh(self._read_listeners, max_age_s=_LISTENERS_AGE_S)

    async def get(self, broker_id: int, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON of a page; PageError if it cannot be read."""
        listener = (await self._listeners.get()).get(broker_id)
        if listener is None:
            self._listeners.forget()
            raise PageError(f"broker {broker_id} did not describe its options")
        if not listener:
            raise PageError(f"broker {broker_id} serves no HTTP, or is not an Ottla broker")
        broker = self._admin.cluster.brokers.get(broker_id)
        if broker is None:
            raise PageError(f"broker {broker_id} is down")
        url = page_url(listener, broker.host, path)
        named = [address.host for address in self._admin.cluster.settings.addresses]
        try:
            headers = authorization(url, named)
        except UntrustedHostError:
            raise PageError(
                f"broker {broker_id} serves HTTP at a host that is not a bootstrap server of the console, so it does "
                f"not get the token in {TOKEN_VARIABLE}: add it to -b"
            ) from None
        try:
            async with self._http.get(
                url,
                params=query,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
                allow_redirects=False,
            ) as answer:
                body = bytearray()
                # `read(n)` returns what has arrived, which is a part of a large page.
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > _PAGE_BYTES_MAX:
                        raise PageError(f"{path} of broker {broker_id} is larger than {_PAGE_BYTES_MAX} bytes")
                if answer.status == 401:
                    raise PageError(f"broker {broker_id} requires a token over HTTP: set {TOKEN_VARIABLE}")
                if answer.status == 404:
                    raise PageError(f"broker {broker_id} has no such page: {path}")
                if answer.status != 200:
                    raise PageError(f"broker {broker_id} answered {answer.status} over HTTP")
                return msgspec.json.decode(body)
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError, ValueError) as error:
            self._listeners.forget()
            reason = str(error) or type(error).__name__
            raise PageError(f"broker {broker_id} does not answer over HTTP: {reason}") from error

    async def get_all(self, broker_ids: Iterable[int], path: str) -> tuple[dict[int, Any], dict[int, str]]:
        """Return a page of several brokers, and why the others could not be read."""
        asked = list(broker_ids)
        answers = await asyncio.gather(*(self.get(each, path) for each in asked), return_exceptions=True)
        pages: dict[int, Any] = {}
        failures: dict[int, str] = {}
        for broker_id, answer in zip(asked, answers, strict=True):
            if isinstance(answer, PageError):
                failures[broker_id] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                pages[broker_id] = answer
        return pages, failures

    async def close(self) -> None:
        """End what is under way; the HTTP client belongs to the console."""
        await self._listeners.close()

    async def _read_listeners(self) -> dict[int, str]:
        """Return the HTTP listener of each broker that describes its options; "" if it has none."""

        async def listener(broker_id: int) -> str | None:
            resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
            try:
                (described,) = await self._admin.describe_configs([resource], names=[LISTENER])
            except KafkaError:
                return None
            return next((each.value or "" for each in described.entries if each.name == LISTENER), "")

        broker_ids = list(self._admin.cluster.brokers)
        found = await asyncio.gather(*map(listener, broker_ids))
        return {each: told for each, told in zip(broker_ids, found, strict=True) if told is not None}


def path_of(*parts: str) -> str:
    """Return a path of `/inside/v1`, with its parts quoted."""
    return "/inside/v1/" + "/".join(quote(part, safe="") for part in parts)
