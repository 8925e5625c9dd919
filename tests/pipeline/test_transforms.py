"""What the jobs do to records, on small tables."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.records import Record, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60


def event(**fields: Any) -> bytes:
    """Return an event as JSON."""
    return json.dumps(fields).encode()


def test_bad_records_are_told_apart_with_reasons(spark: SparkSession) -> None:
    """What is not JSON, of another type, or lacks a field that must be there; a tombstone is never bad."""
    from pyspark.sql.types import StructType

    from ottla.pipeline.transforms.quality import with_reason

    values = {
        b'{"id": 1, "name": "a", "more": []}': None,
        b'{"id": 2}': None,
        b"{": "the value is not JSON",
        b"\xff\xfe": "the value is not JSON",
        b'{"id": "x"}': "the value is not of the schema",
        b'{"name": "a"}': "the field id is missing",
        b"null": "the value is not of the schema",
        None: None,
    }
    rows = rows_of(spark, [Record(n, value) for n, value in enumerate(values)])
    schema = StructType.fromDDL("id BIGINT NOT NULL, name STRING")
    assert isinstance(schema, StructType)

    judged = with_reason(rows, json=False, schema=schema).orderBy("offset").collect()

    assert [row["reason"] for row in judged] == list(values.values())


def test_a_dead_letter_has_its_reason_and_place_in_headers(spark: SparkSession) -> None:
    """Key, value and its own headers stay."""
    from pyspark.sql import functions as F  # noqa: N812

    from ottla.pipeline.transforms.quality import dead_letters

    rows = rows_of(spark, [Record(7, b"x", b"k", partition=2, headers=[("own", b"1")]), Record(8, headers=None)])

    letter, bare = dead_letters(rows.withColumn("reason", F.lit("bad"))).collect()

    added = [("reason", b"bad"), ("topic", b"orders"), ("partition", b"2"), ("offset", b"7")]
    assert (letter["key"], letter["value"]) == (b"k", b"x")
    assert [tuple(header) for header in letter["headers"]] == [
        ("own", b"1"),
        *((f"ottla.dead-letter.{name}", value) for name, value in added),
    ]
    assert len(bare["headers"]) == len(added)


def test_the_hash_tells_contents_apart(spark: SparkSession) -> None:
    """Null from empty, key from value, headers from none; where a record stands does not matter."""
    from ottla.pipeline.transforms.checksums import content_hash

    contents = [
        Record(0, b"a", None),
        Record(1, None, b"a"),
        Record(2, b"", None),
        Record(3, None, None),
        Record(4, b"a", None, headers=[("a", b"a")]),
        Record(5, b"a", None, headers=[("a", None)]),
        Record(6, b"a", None, seconds=0.001),
        Record(7, b"a", None, topic="other", partition=9, headers=None),
    ]

    hashes = [row[0] for row in rows_of(spark, contents).select(content_hash()).collect()]

    assert len(set(hashes)) == len(contents) - 1
    assert hashes[0] == hashes[7]


def test_windows_have_counts_sums_and_quantiles_of_each_key(spark: SparkSession) -> None:
    """Fields may be nested; what is not an event is left out."""
    from ottla.pipeline.transforms.windows import as_records, events, windowed

    records = [
        *(Record(n, event(customer={"id": "a"}, total=n), seconds=n) for n in range(1, 5)),
        Record(5, event(customer={"id": "a"}, total=10), seconds=MINUTE),
        Record(6, event(customer={"id": "b"}, total="none")),
        Record(7, event(total=1)),
        Record(8, b"not JSON"),
        Record(9, None),
    ]

    found = events(rows_of(spark, records), key_field="customer.id", value_field="total", time_field=None)
    results = windowed(found, window="1 minute", slide=None, watermark="1 minute", quantiles=(0.5, 1.0))

    rows = {(row["key"], row["window_start"].minute): row for row in results.collect()}
    assert rows.keys() == {("a", 0), ("a", 1), ("b", 0)}
    first = rows["a", 0]
    assert (first["count"], first["sum"], first["min"], first["max"]) == (4, 10.0, 1.0, 4.0)
    assert first["quantiles"] == {"0.5": 2.0, "1.0": 4.0}
    assert (rows["b", 0]["count"], rows["b", 0]["sum"]) == (1, None)
    record = as_records(results.filter("key = 'a' and sum = 10 and count = 1")).first()
    assert record is not None
    window = {"window_start": "2026-11-16T12:01:00.000Z", "window_end": "2026-11-16T12:02:00.000Z"}
    assert json.loads(record["key"]) == {"key": "a", **window}
    assert json.loads(record["value"]).items() >= {"key": "a", "count": 1, "sum": 10.0, **window}.items()


def test_events_have_times_of_their_own_where_a_field_is_named(spark: SparkSession) -> None:
    """The record's own key stands in for a field; an event without a time is left out."""
    from ottla.pipeline.transforms.windows import events

    records = [Record(0, event(at="2026-01-02T03:04:05Z")), Record(1, event(at="soon")), Record(2, event())]

    found = events(rows_of(spark, records), key_field=None, value_field=None, time_field="at").collect()

    assert [(row["key"], str(row["time"]), row["number"]) for row in found] == [("key", "2026-01-02 03:04:05", None)]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2)), st.lists(st.integers(0, 30), min_size=1), max_size=6
    ),
    st.integers(1, 50),
)
def test_steps_have_all_pieces_in_the_order_of_their_partitions(
    sizes: dict[tuple[str, int], list[int]], rows_max: int
) -> None:
    """However many there are; a step is only larger than asked for where one piece is."""
    from ottla.pipeline.transforms.pacing import Slice, advanced, steps

    pieces = [Slice(*key, 10 * n, 10 * n + 10, rows) for key, found in sizes.items() for n, rows in enumerate(found)]

    planned = list(steps(pieces, rows_max))

    progress: dict[str, dict[str, int]] = {}
    for step in planned:
        assert step.rows <= rows_max or len(step.slices) == 1
        for (topic, partition), piece in step.slices.items():
            assert piece.begin == progress.get(topic, {}).get(str(partition), 0)
        progress = advanced(progress, step)
    assert sum(step.rows for step in planned) == sum(piece.rows for piece in pieces)
    assert progress.keys() == {topic for topic, _ in sizes}


@pytest.mark.parametrize(("rows", "seconds", "rate", "wait"), [(100, 0.5, 100, 0.5), (100, 2, 100, 0), (9, 0, None, 0)])
def test_a_replay_waits_only_as_long_as_its_rate_wants(
    rows: int, seconds: float, rate: int | None, wait: float
) -> None:
    """Sending takes time, too."""
    from ottla.pipeline.transforms.pacing import wait_seconds

    assert wait_seconds(rows, seconds, rate) == wait


@given(st.sets(st.integers(0, 40)))
def test_findings_put_offsets_together_that_follow_each_other(offsets: set[int]) -> None:
    """No two ranges touch, and together they are the offsets."""
    from ottla.pipeline.transforms.findings import ranges

    found = [(each.first_offset or 0, each.last_offset or 0) for each in ranges("gap", "t", 0, offsets)]

    assert {offset for first, last in found for offset in range(first, last + 1)} == offsets
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(found))
