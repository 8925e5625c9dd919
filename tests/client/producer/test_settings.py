"""The options of a producer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.errors import (
    KafkaConfigurationError,
)
from ottla.client.producer.producer import Producer


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"acks": 2}, "acks must be one of"),
        ({"acks": 1, "enable_idempotence": True}, "enable_idempotence needs acks='all'"),
        ({"transactional_id": "orders", "acks": 1}, "transactional_id needs acks='all'"),
        ({"transactional_id": "orders", "enable_idempotence": False}, "transactional_id needs acks='all'"),
        ({"transactional_id": ""}, "transactional_id must not be empty"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms must be at least 1"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"compression_type": "rar"}, "compression_type must be one of"),
        ({"max_batch_size": 0}, "max_batch_size must be"),
        ({"buffer_memory": 1000}, "does not fit"),
        ({"linger_ms": 10, "delivery_timeout_ms": 5}, "less than linger_ms"),
        ({"linger": 1}, "did you mean linger_ms"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], reason: str) -> None:
    """When the producer is made."""
    with pytest.raises(KafkaConfigurationError, match=reason):
        Producer(**options)


def test_options_may_have_dotted_names() -> None:
    """Kafka's and librdkafka's."""
    settings = Producer.from_config(
        {"acks": "1", "batch.size": "5", "enable.idempotence": "false", "compression.codec": "lz4"}, linger_ms=7
    ).settings

    assert (settings.acks, settings.max_batch_size, settings.linger_ms) == (1, 5, 7)
    assert (settings.enable_idempotence, settings.compression_type) == (False, "lz4")
    assert Producer.from_config({"acks": "all"}).settings.acks == "all"
    named = Producer.from_config({"transactional.id": "orders", "transaction.timeout.ms": "5000"}).settings
    assert (named.transactional_id, named.transaction_timeout_ms) == ("orders", 5000)
