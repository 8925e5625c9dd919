"""The options of a consumer: what is refused, and how they are written in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.errors import KafkaConfigurationError


@pytest.mark.parametrize(
    "options",
    [
        {"auto_offset_reset": "first"},
        {"isolation_level": "serializable"},
        {"group_protocol": "new"},
        {"fetch_max_bytes": 0},
        {"max_poll_records": 0},
        {"heartbeat_interval_ms": 45_000},
        {"group_instance_id": "one"},
        {"partition_assignment_strategy": ["fair"]},
        {"partition_assignment_strategy": []},
        {"max_pol_records": 5},
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any]) -> None:
    """With a KafkaConfigurationError, before anything is connected."""
    with pytest.raises(KafkaConfigurationError):
        Consumer("t", **options)


def test_dotted_names_are_read(tmp_path: Path) -> None:
    """From a mapping, and from a file; names of librdkafka are known too."""
    config = {
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "fetch.wait.max.ms": "50",
        "partition.assignment.strategy": "roundrobin, range",
        "isolation.level": "read_committed",
    }
    file = tmp_path / "consumer.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    for given in (config, file):
        settings = Consumer.from_config(given, "t", client_id="me").settings
        assert settings == ConsumerSettings(
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
            partition_assignment_strategy=("roundrobin", "range"),
            isolation_level="read_committed",
            client_id="me",
        )
        assert settings.isolation == 1
