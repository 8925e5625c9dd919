"""All clients, for tests that hold for each of them."""

from __future__ import annotations

from tests.interop.clients.aio import AioKafka
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.kcat import Kcat, kcat_path
from tests.interop.clients.python import KafkaPython
from tests.interop.clients.record import Client
from tests.kit.apache_kafka import UnavailableError, skip_or_fail

CLIENTS: tuple[Client, ...] = (Confluent(), AioKafka(), KafkaPython(), Kcat())
LIBRARIES: tuple[Client, ...] = CLIENTS[:3]


def client_name(client: Client) -> str:
    """Name a test after its client."""
    return client.name


def available(client: Client) -> Client:
    """Return the client; a test with one that is not installed is skipped, and fails under CI."""
    if isinstance(client, Kcat):
        try:
            kcat_path()
        except UnavailableError as reason:
            skip_or_fail(reason)
    return client
