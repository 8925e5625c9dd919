"""`ottla log dump` and `verify` on files that a real broker wrote, and that were damaged since."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess, MakeBroker
from tests.kit.examples import examples

from ottla.client.cli.records.segment_verifying import verified
from ottla.protocol.compression import Codec
from ottla.protocol.record_batch_builder import RecordBatchBuilder

FIRST = "00000000000000000000"


@pytest.fixture
def segment(ottla: Ottla, broker: BrokerProcess, topic: str, tmp_path: Path) -> Path:
    """A copy of a segment with two batches, of two records and one, and no room for more."""
    ottla("topic", "create", topic)
    ottla("topic", "produce", topic, "a", "b", "--key", "k", "-X", "linger.ms=100")
    ottla("topic", "produce", topic, "c", "-z", "gzip")
    folder = tmp_path / f"{topic}-0"
    shutil.copytree(broker.partition_dir(topic), folder)
    copy = folder / f"{FIRST}.log"
    last = ottla("log", "dump", str(copy), "--format", "json").items[-1]
    os.truncate(copy, last["position"] + last["size_bytes"])
    return copy


def test_batches_and_records_are_dumped(ottla: Ottla, segment: Path) -> None:
    """As lines, and as JSON with their records."""
    dumped = ottla("log", "dump", str(segment))
    assert dumped.code == 0
    assert dumped.out.split()[:3] == ["POSITION", "BASE-OFFSET", "LAST-OFFSET"]
    assert [row[1:4] + row[5:6] for row in dumped.rows] == [["0", "1", "2", "none"], ["2", "2", "1", "gzip"]]

    first, second = ottla("log", "dump", str(segment), "--records", "--format", "json").items
    assert (first["position"], first["records"], second["base_offset"]) == (0, 2, 2)
    assert second["position"] == first["size_bytes"]
    assert [(each["key"], each["value"]) for each in first["content"]] == [("k", "a"), ("k", "b")]
    assert "'k': 'a'" in ottla("log", "dump", str(segment), "--records").out


def test_a_folder_is_dumped_segment_by_segment(ottla: Ottla, segment: Path) -> None:
    """Each under its name, which is a field in JSON."""
    dumped = ottla("log", "dump", str(segment.parent))
    assert (dumped.code, dumped.out.splitlines()[0]) == (0, str(segment))
    assert {item["file"] for item in ottla("log", "dump", str(segment.parent), "--format", "json").items} == {
        str(segment)
    }


def test_indexes_are_dumped(ottla: Ottla, make_broker: MakeBroker, topic: str) -> None:
    """A broker that indexes every batch writes an entry for each but the first."""
    own = make_broker("log.index.interval.bytes=0")
    at = own.bootstrap
    ottla("topic", "create", topic, bootstrap=at)
    for value in "abc":
        ottla("topic", "produce", topic, value, bootstrap=at)
    assert own.stop() == 0
    index = own.partition_dir(topic) / f"{FIRST}.index"

    assert [item["offset"] for item in ottla("log", "dump", str(index), "--format", "json").items][-1] == 2
    assert ottla("log", "dump", str(index)).out.split()[:2] == ["OFFSET", "POSITION"]
    times = ottla("log", "dump", str(index.with_suffix(".timeindex")), "--format", "json").items
    assert set(times[0]) == {"timestamp", "offset"}
    assert ottla("log", "verify", str(own.log_dir)).code == 0

    broken = bytearray(index.read_bytes())
    broken[4:8] = (1).to_bytes(4, "big")
    index.write_bytes(broken)
    checked = ottla("log", "verify", str(own.log_dir))
    assert (checked.code, f"{index} at byte 0" in checked.err) == (1, True)
    index.write_bytes(broken[:-1])
    assert "ends within an entry" in ottla("log", "verify", str(own.log_dir)).err


def test_whole_segments_are_fine(ottla: Ottla, segment: Path) -> None:
    """By file, and by directory."""
    (row,) = ottla("log", "verify", str(segment)).rows
    assert row == [str(segment), str(segment.stat().st_size), "2", "3", "0", "2", "0", "ok"]
    (item,) = ottla("log", "verify", str(segment.parent.parent), "--format", "json").items
    assert (item["file"], item["records"], item["problems"]) == (str(segment), 3, [])


def test_a_segment_that_is_gone_when_its_turn_comes_is_left_out(ottla: Ottla, segment: Path) -> None:
    """A running broker deletes segments: that is no damage."""
    listed = segment.with_name("00000000000000000009.log")
    listed.symlink_to("gone.log")
    verified = ottla("log", "verify", str(segment.parent), "--format", "json")
    assert (verified.code, verified.err) == (0, "")
    assert [item["file"] for item in verified.items] == [str(segment)]


@pytest.mark.parametrize(
    ("damage", "position", "told"),
    [
        (lambda data, second: data[: second + 15], "second", "15 bytes into a batch header"),
        (lambda data, second: data[:-3], "second", "into a batch of"),
        (lambda data, second: data + bytes(99) + b"x", "end", "zeros instead of a batch"),
        (lambda data, second: data[:-1] + bytes([data[-1] ^ 1]), "second", "CRC"),
        (lambda data, second: data[second:] + data[:second], "first", "offset 0, but at least 3 was expected"),
        (lambda data, second: data[: second + 8] + bytes(4) + data[second + 12 :], "length", "shorter than its header"),
    ],
)
def test_the_first_bad_byte_is_found(ottla: Ottla, segment: Path, damage: object, position: str, told: str) -> None:
    """What is cut, zeroed, flipped or swapped is told with its place, by verify and by dump."""
    assert callable(damage)
    data = segment.read_bytes()
    second = ottla("log", "dump", str(segment), "--format", "json").items[1]["position"]
    segment.write_bytes(damage(data, second))
    size = segment.stat().st_size
    places = {
        "second": second,
        "end": min(size, len(data)),
        "first": len(data) - second,
        "length": second + 8,
    }

    checked = ottla("log", "verify", str(segment), "--format", "json")

    assert checked.code == 1
    (problem,) = checked.items[0]["problems"]
    assert (problem["file"], problem["position"]) == (str(segment), places[position])
    assert told in problem["problem"]
    assert "DAMAGED" in ottla("log", "verify", str(segment)).out


def test_zeros_at_the_end_are_room_for_more(ottla: Ottla, segment: Path) -> None:
    """As in the newest segment of a broker that runs."""
    os.truncate(segment, segment.stat().st_size + 4096)

    (item,) = ottla("log", "verify", str(segment), "--format", "json").items

    assert (item["unused_bytes"], item["problems"]) == (4096, [])


def test_damage_ends_a_dump(ottla: Ottla, segment: Path) -> None:
    """What is before it is shown."""
    segment.write_bytes(segment.read_bytes()[:-1])

    dumped = ottla("log", "dump", str(segment), "--format", "json")

    assert (dumped.code, len(dumped.items)) == (1, 1)
    assert "is damaged at byte" in dumped.err


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_are_verified_without_another_error(tmp_path: Path, data: st.DataObject) -> None:
    """A good segment with some of its bytes changed, cut and added to."""
    builder = RecordBatchBuilder()
    builder.append(1_000, b"k", b"v")
    builder.append(1_001, None, None, [("h", b"x")])
    good = builder.build(codec=data.draw(st.sampled_from(Codec)))
    for _ in range(data.draw(st.integers(0, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    segment = tmp_path / f"{FIRST}.log"
    segment.write_bytes(good[: data.draw(st.integers(0, len(good)))] + data.draw(st.binary(max_size=70)))
    segment.with_suffix(".index").write_bytes(data.draw(st.binary(max_size=24)))
    segment.with_suffix(".timeindex").write_bytes(data.draw(st.binary(max_size=36)))

    report = verified(segment)

    assert all(0 <= problem.position <= Path(problem.file).stat().st_size for problem in report.problems)


def test_files_that_are_no_segments_are_refused(ottla: Ottla, tmp_path: Path) -> None:
    """In plain words."""
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert ottla("log", "dump", str(other)).code == 2
    assert ottla("log", "dump", str(tmp_path / "missing.log")).code == 1
    assert "no segments" in ottla("log", "verify", str(tmp_path)).err
    assert ottla("log", "verify", str(other)).code == 1
    assert ottla("log", "verify", str(tmp_path / "missing.log")).code == 1
    named = tmp_path / "x.log"
    named.write_bytes(b"")
    assert "digits" in ottla("log", "verify", str(named)).err
