"""The files that Apache Kafka writes, read without it."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from tests.kit.kafka_process import KafkaProcess, kafka_or_skip
from tests.kit.zookeeper import ZooKeeper
from tests.pipeline.log_samples import read_rows


def test_files_of_apache_kafka_are_read(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """In all codecs, in several segments, with a transaction; markers have no rows, and the tail may be torn."""
    kafka_or_skip()
    broker = KafkaProcess(
        tmp_path,
        zookeeper.connect,
        "log.segment.bytes=20000",
        "num.partitions=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    )
    with broker:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            options = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "transactional.id": codec}
            producer = Producer(options)
            producer.init_transactions(60)
            producer.begin_transaction()
            for number in range(100):
                producer.produce("orders", f"{codec} {number} ".encode() * 20, b"key", headers=[("codec", codec)])
            producer.commit_transaction(60)
    rows = read_rows(broker.log_dir, subscribe="orders", includeHeaders="true")

    assert len(list((broker.log_dir / "orders-0").glob("*.log"))) > 1
    wanted = [(codec, number) for codec in ("none", "gzip", "snappy", "lz4", "zstd") for number in range(100)]
    assert [row["value"] for row in rows] == [f"{codec} {number} ".encode() * 20 for codec, number in wanted]
    assert [row["headers"] for row in rows] == [[{"key": "codec", "value": codec.encode()}] for codec, _ in wanted]
    # Each transaction is followed by its marker, which takes an offset.
    assert [row["offset"] for row in rows] == [number for number in range(505) if number % 101 != 100]
