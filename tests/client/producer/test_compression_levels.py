"""The levels of the codecs, as Kafka's options set them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.producer.scripted_producing import Brokers, producing

from ottla.client.errors import KafkaConfigurationError
from ottla.client.producer.producer import Producer

TEXT = b"".join(b"%d bottles of beer on the wall, %d bottles of beer. " % (number, number * 7) for number in range(900))


@pytest.mark.parametrize(
    ("codec", "fast", "small"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -50, 19)], ids=["gzip", "lz4", "zstd"]
)
async def test_a_higher_level_makes_smaller_batches(codec: str, fast: int, small: int) -> None:
    """All of them can be read."""
    sizes = []
    for level in (fast, small):
        brokers = Brokers()
        options: dict[str, Any] = {"compression_type": codec, f"compression_{codec}_level": level}
        async with producing(brokers, **options) as producer:
            await producer.send_and_wait("t", TEXT, partition=0)
        ((_, batch),) = brokers.batches
        assert [record.value for record in batch.records()] == [TEXT]
        sizes.append(batch.size)

    assert sizes[0] > sizes[1]


async def test_the_level_of_another_codec_has_no_effect() -> None:
    """Options may be set for all codecs in one file."""
    brokers = Brokers()
    async with producing(brokers, compression_type="snappy", compression_zstd_level=19) as producer:
        await producer.send_and_wait("t", TEXT, partition=0)

    assert [record.value for record in brokers.batches[0][1].records()] == [TEXT]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression_gzip_level": 0}, "from -1 to 9 without 0, not 0"),
        ({"compression_gzip_level": 10}, "from -1 to 9 without 0, not 10"),
        ({"compression_lz4_level": 18}, "from 1 to 17, not 18"),
        ({"compression_zstd_level": 23}, "from -131072 to 22, not 23"),
    ],
)
def test_a_level_that_does_not_exist_is_refused(options: dict[str, Any], said: str) -> None:
    """With those that do."""
    with pytest.raises(KafkaConfigurationError, match=said):
        Producer(**options)


def test_kafkas_names_set_the_levels() -> None:
    """Numbers in a file of options are text."""
    producer = Producer.from_config({"compression.type": "zstd", "compression.zstd.level": "7"})

    assert producer.settings.compression_level == 7
