"""The jobs one after the other on a real cluster: archive, audit, replay, aggregate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.conftest import MakeTopic
from tests.pipeline.failing_sink import FailingSource

from ottla.client.testing.fault_cluster import FaultCluster
from ottla.client.types import ConsumerRecord
from ottla.sync import Admin, Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Dozens of small queries, on a machine that may have other things to do.
pytestmark = pytest.mark.timeout(1800)

END = b"end"
BAD = {3: b"{", 7: b'{"id": "seven"}'}


def produce(cluster: FaultCluster, topic: str, values: list[bytes | None]) -> None:
    """Send values in turn to two partitions, with keys and headers that say which is which."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            headers = [("number", b"%d" % number)]
            producer.send(topic, value, key=b"key %d" % (number % 4), partition=number % 2, headers=headers)


def consumed(cluster: FaultCluster, topic: str, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    """Return the first records of a topic, by partition and offset."""
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 60_000}
    found = []
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
        for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return sorted(found, key=lambda record: (record.partition, record.offset))


def committed(cluster: FaultCluster, topic: str, partitions: int) -> list[ConsumerRecord[bytes, bytes]]:
    """Return all committed records of a topic, by partition and offset; written before those that this adds."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for partition in range(partitions):
            producer.send(topic, END, partition=partition)
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 60_000}
    found = []
    ends = 0
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed", **settings
    ) as consumer:
        for record in consumer:
            if record.value == END:
                ends += 1
            else:
                found.append(record)
            if ends == partitions:
                break
    assert ends == partitions
    return sorted(found, key=lambda record: (record.partition, record.offset))


def contents(records: list[ConsumerRecord[bytes, bytes]]) -> list[tuple[Any, ...]]:
    """Return what a replay keeps."""
    return [(each.partition, each.key, each.value, tuple(map(tuple, each.headers))) for each in records]


def test_bad_records_go_to_the_dead_letter_topic_and_the_archive_stays_complete(
    spark: SparkSession,
    pipeline_cluster: FaultCluster,
    pipeline_topic: MakeTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And the archive can be replayed to another topic, as can the log of a broker, once and not again."""
    from ottla.pipeline.errors import SettingsError
    from ottla.pipeline.jobs import archive, audit, replay
    from ottla.pipeline.settings import ArchiveSettings, AuditSettings, ReplaySettings

    topic, dead = pipeline_topic(partitions=2), pipeline_topic(partitions=1)
    again = f"{topic}-again"
    values = [BAD.get(n, b'{"id": %d}' % n) for n in range(20)]
    produce(pipeline_cluster, topic, [*values, None])
    where: dict[str, Any] = {"bootstrap_servers": pipeline_cluster.bootstrap_servers}
    root = str(tmp_path / "archive")

    settings = ArchiveSettings(
        topics=(topic,), archive=root, schema="id BIGINT NOT NULL", dead_letter_topic=dead, once=True, **where
    )
    assert archive.run(spark, settings) == 0

    letters = consumed(pipeline_cluster, dead, len(BAD))
    assert {each.value for each in letters} == set(BAD.values())
    reasons = {dict(each.headers)["ottla.dead-letter.reason"] for each in letters}
    assert reasons == {b"the value is not JSON", b"the value is not of the schema"}
    capsys.readouterr()
    assert audit.run(spark, AuditSettings(archive=root, format="json", **where)) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(each["rows"], each["source_rows"]) for each in report["partitions"]] == [(11, 11), (10, 10)]

    replayed = ReplaySettings(
        source=root, target_topic=again, progress=str(tmp_path / "progress.json"), chunk_records=8, **where
    )
    assert replay.run(spark, replayed) == 0
    good = [each for each in consumed(pipeline_cluster, topic, 21) if each.value not in BAD.values()]
    assert contents(consumed(pipeline_cluster, again, 19)) == contents(good)
    capsys.readouterr()
    assert replay.run(spark, replayed) == 0
    assert capsys.readouterr().err == "0 records replayed\n"
    with pytest.raises(SettingsError, match="has 1 partitions and 2 are needed"):
        replay.run(spark, ReplaySettings(source=root, target_topic=dead, **where))
    with Admin(bootstrap_servers=pipeline_cluster.bootstrap_servers) as admin:
        admin.delete_topics([again])


@pytest.mark.long
def test_a_replay_that_was_cut_off_sends_each_record_once(
    spark: SparkSession,
    pipeline_cluster: FaultCluster,
    pipeline_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file of its progress lacks a step that was sent; the next run has other steps, but first repeats this one."""
    from ottla.pipeline.errors import SettingsError
    from ottla.pipeline.jobs import replay
    from ottla.pipeline.settings import ReplaySettings

    topic, again = pipeline_topic(partitions=2), pipeline_topic(partitions=2)
    produce(pipeline_cluster, topic, [b"%d" % number for number in range(40)])
    progress = tmp_path / "progress.json"
    settings: dict[str, Any] = {
        "bootstrap_servers": pipeline_cluster.bootstrap_servers,
        "source": str(pipeline_cluster.data_dir(1)),
        "source_format": "ottla-log",
        "target_topic": again,
        "progress": str(progress),
    }

    def die(kept: replay.KeptProgress, step: object) -> None:
        if kept.progress.steps == 1:
            raise RuntimeError("the driver dies")
        end(kept, step)

    end: Any = replay.KeptProgress.end
    with monkeypatch.context() as patches:
        patches.setattr(replay.KeptProgress, "end", die)
        with pytest.raises(RuntimeError, match="dies"):
            replay.run(spark, ReplaySettings(topics=(topic,), chunk_records=10, **settings))
    with pytest.raises(SettingsError, match=f"cut off while it sent records of {topic}"):
        replay.run(spark, ReplaySettings(topics=("another",), **settings))
    assert replay.run(spark, ReplaySettings(topics=(topic,), chunk_records=8, **settings)) == 0

    assert contents(committed(pipeline_cluster, again, 2)) == contents(consumed(pipeline_cluster, topic, 40))
    delete_control_topic(pipeline_cluster, json.loads(progress.read_text())["sink"])


def test_dead_letters_of_a_batch_that_is_repeated_are_sent_once(
    spark: SparkSession,
    pipeline_cluster: FaultCluster,
    pipeline_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The archive fails after the letters are sent; the query starts again with the same batch."""
    from ottla.pipeline.archives.archive import Archive
    from ottla.pipeline.jobs import archive
    from ottla.pipeline.settings import ArchiveSettings

    topic, dead = pipeline_topic(partitions=2), pipeline_topic(partitions=1)
    produce(pipeline_cluster, topic, [b"bad %d" % number for number in range(20)])
    settings = ArchiveSettings(
        bootstrap_servers=pipeline_cluster.bootstrap_servers,
        topics=(topic,),
        archive=str(tmp_path),
        reject="json",
        dead_letter_topic=dead,
        once=True,
    )
    failures = ["the disk is full"] * 2

    def append(*given: Any) -> Any:
        if failures:
            raise OSError(failures.pop())
        return really_append(*given)

    really_append = Archive.append
    monkeypatch.setattr(Archive, "append", append)
    monkeypatch.setattr("ottla.pipeline.streaming._PAUSE_S_MAX", 0.0)

    assert archive.run(spark, settings) == 0

    letters = committed(pipeline_cluster, dead, 1)
    assert not failures
    assert sorted(each.value or b"" for each in letters) == sorted(b"bad %d" % number for number in range(20))
    query = json.loads((tmp_path / "_checkpoint" / "metadata").read_text())["id"]
    delete_control_topic(pipeline_cluster, f"dead-letters-{query}")


def delete_control_topic(cluster: FaultCluster, sink: str) -> None:
    """Delete what a sink keeps in the cluster."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics([f"ottla-sink-{sink}"])


def test_a_log_is_replayed_with_the_places_of_its_records(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic
) -> None:
    """From the files of a broker, to a topic with other partitions."""
    from ottla.pipeline.jobs import replay
    from ottla.pipeline.settings import ReplaySettings

    topic, again = pipeline_topic(partitions=2), pipeline_topic(partitions=1)
    produce(pipeline_cluster, topic, [b"%d" % n for n in range(10)])
    settings = ReplaySettings(
        bootstrap_servers=pipeline_cluster.bootstrap_servers,
        source=str(pipeline_cluster.data_dir(1)),
        source_format="ottla-log",
        topics=(topic,),
        target_topic=again,
        keep_partitions=False,
        place_headers=True,
        records_per_second=1000,
    )

    assert replay.run(spark, settings) == 0

    places = [dict(each.headers) for each in consumed(pipeline_cluster, again, 10)]
    for partition in (b"0", b"1"):
        offsets = [each["ottla.replay.offset"] for each in places if each["ottla.replay.partition"] == partition]
        assert offsets == [b"%d" % n for n in range(5)]


def test_results_of_windows_go_to_a_compacted_topic_and_to_parquet(
    spark: SparkSession, pipeline_cluster: FaultCluster, pipeline_topic: MakeTopic, tmp_path: Path
) -> None:
    """A window is final when the watermark has passed it; the last one is still open."""
    from ottla.pipeline.jobs import aggregate
    from ottla.pipeline.settings import AggregateSettings

    topic = pipeline_topic(partitions=2)
    results = f"{topic}-results"
    events = [("a", 0, 1), ("a", 1, 3), ("b", 2, 5), ("a", 600, 0)]
    times = [f"2026-11-16T12:{seconds // 60:02d}:{seconds % 60:02d}Z" for _, seconds, _ in events]
    values = [
        json.dumps({"who": who, "at": at, "n": n}).encode() for (who, _, n), at in zip(events, times, strict=True)
    ]
    produce(pipeline_cluster, topic, [*values, b"not JSON"])
    settings = AggregateSettings(
        bootstrap_servers=pipeline_cluster.bootstrap_servers,
        topics=(topic,),
        key_field="who",
        value_field="n",
        time_field="at",
        quantiles=(0.5,),
        output_topic=results,
        output=str(tmp_path / "results"),
        once=True,
    )

    assert aggregate.run(spark, settings) == 0

    records = [json.loads(each.value or b"") for each in consumed(pipeline_cluster, results, 2)]
    found = {(each["key"], each["count"], each["sum"], each["quantiles"]["0.5"]) for each in records}
    assert found == {("a", 2, 4.0, 1.0), ("b", 1, 5.0, 5.0)}
    rows = spark.read.parquet(str(tmp_path / "results")).collect()
    assert {(row["key"], row["count"]) for row in rows} == {("a", 2), ("b", 1)}
    delete_results(pipeline_cluster, results, tmp_path / "results" / "_checkpoint")


def delete_results(cluster: FaultCluster, topic: str, checkpoint: Path) -> None:
    """Delete the topic of the results, and what its sink keeps in the cluster."""
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic, f"ottla-sink-windows-{query}"])


@pytest.mark.parametrize("at", ["between", pytest.param("after", marks=pytest.mark.long)])
def test_results_of_a_batch_that_is_repeated_are_sent_once(
    at: str,
    spark: SparkSession,
    pipeline_cluster: FaultCluster,
    pipeline_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver dies twice between the commits of the shards, or after them; the query starts again with the batch."""
    from ottla.pipeline import topics
    from ottla.pipeline.jobs import aggregate
    from ottla.pipeline.settings import AggregateSettings, JobSettings

    spark.dataSource.register(FailingSource)
    topic, results = pipeline_topic(partitions=2), pipeline_topic(partitions=1)
    keys = [f"key-{number}" for number in range(20)]
    events = [{"who": key, "at": f"2026-11-16T12:{minute:02d}:00Z"} for minute in (0, 1, 10) for key in keys]
    produce(pipeline_cluster, topic, [json.dumps(event).encode() for event in events])
    settings = AggregateSettings(
        bootstrap_servers=pipeline_cluster.bootstrap_servers,
        topics=(topic,),
        key_field="who",
        time_field="at",
        output_topic=results,
        checkpoint=str(tmp_path),
        once=True,
    )
    failures = [at] * 2

    def send(rows: DataFrame, given: JobSettings, *arguments: Any) -> None:
        really_send(rows, replace(given, connector="failing") if failures else given, *arguments)

    def client_options(given: JobSettings) -> dict[str, str]:
        options = really_client_options(given)
        return {**options, "failAt": failures.pop()} if given.connector == "failing" else options

    really_send, really_client_options = topics.send, topics.client_options
    monkeypatch.setattr(aggregate, "send", send)
    monkeypatch.setattr(topics, "client_options", client_options)
    monkeypatch.setattr("ottla.pipeline.streaming._PAUSE_S_MAX", 0.0)

    assert aggregate.run(spark, settings) == 0

    assert not failures
    found = [json.loads(each.value or b"") for each in committed(pipeline_cluster, results, 1)]
    expected = [(key, f"2026-11-16T12:{minute:02d}:00.000Z", 1) for minute in (0, 1) for key in keys]
    assert sorted((each["key"], each["window_start"], each["count"]) for each in found) == sorted(expected)
    delete_results(pipeline_cluster, results, tmp_path)
