"""Fills a small disk with a log until it refuses, and goes on: `python -m ... DIRECTORY within|roll`.

A program of its own: a store to a page that the disk has no room for would end the process, and not raise anything.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.broker.storage.logs import append, make_batch, make_log, offsets, read_all, topic_config

from ottla.broker.storage.log import Log
from ottla.broker.storage.maintenance.retention import delete_old_segments, remove_doomed
from ottla.broker.storage.recovery.recovery import close_log
from ottla.protocol.errors import ErrorCode, KafkaError

KIB = 1024
LARGE = bytes(15 * KIB)
_APPENDS_MAX = 2000


def fill_up(log: Log, value: bytes) -> KafkaError:
    """Append until the disk refuses; return what the log said."""
    for _ in range(_APPENDS_MAX):
        try:
            append(log, make_batch(value=value))
        except KafkaError as error:
            return error
    raise AssertionError("the disk is larger than it should be")


def check_whole(log: Log, count: int) -> None:
    """All that was appended is there, and nothing else."""
    assert log.log_end_offset == count
    assert offsets(log) == list(range(count))
    for batch in read_all(log, 1 << 20):
        assert len(list(batch.records())) == 1


def main(directory: Path, where: str) -> None:
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(512 * KIB))
    options = {"segment_bytes": 64 * 1024 * KIB if where == "within" else 64 * KIB, "retention_bytes": -1}
    log = make_log(directory / "orders-0", **options)  # type: ignore[arg-type]
    refused = fill_up(log, LARGE)
    count = log.log_end_offset

    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR, refused
    assert "No space left on device" in str(refused), refused
    assert (len(log.segments) == 1) == (where == "within"), log
    check_whole(log, count)
    # Still full: a smaller one may fit, and each refusal leaves the log as it was.
    fill_up(log, b"small")
    fill_up(log, LARGE)
    count = log.log_end_offset
    check_whole(log, count)

    # As after a crash on a full disk.
    log = make_log(directory / "orders-0", recovery_point=0, **options)  # type: ignore[arg-type]
    check_whole(log, count)
    fill_up(log, LARGE)
    count = log.log_end_offset

    if where == "roll":
        # Deleting works without room, and makes some.
        log.config = topic_config(**{**options, "retention_bytes": 128 * KIB})
        assert delete_old_segments(log)
        assert remove_doomed(log)
    else:
        ballast.unlink()
    for _ in range(5):
        append(log, make_batch(value=LARGE))
    assert log.log_end_offset == count + 5
    close_log(log)
    start = log.log_start_offset
    log = make_log(
        directory / "orders-0",
        was_clean=True,
        recovery_point=count + 5,
        log_start_offset=start,
        **options,  # type: ignore[arg-type]
    )
    assert offsets(log) == list(range(start, count + 5))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
