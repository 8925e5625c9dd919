"""Pages of an active segment that the system cannot give any more."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.interop.raw import RawConnection, one_record, retrying
from tests.kit.broker_process import MakeBroker, topic_name

from ottla.protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says beforehand what a store would do")


def test_a_page_that_is_lost_takes_one_directory_offline_and_not_the_broker(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    """A store to it would be SIGBUS. The file is cut under the broker; what else is on its disks is served on."""
    directories = [tmp_path / "first", tmp_path / "second"]
    broker = make_broker(f"log.dirs={directories[0]},{directories[1]}")
    topics = [topic_name(), topic_name()]
    with RawConnection(broker.bootstrap) as connection:
        for topic in topics:
            retrying(partial(connection.create_topic, topic))
            retrying(partial(connection.produce, topic, one_record(b"before")))
        # Each directory gets as many partitions as the other.
        (lost,) = [topic for topic in topics if (directories[0] / f"{topic}-0").exists()]
        (kept,) = [topic for topic in topics if topic != lost]
        os.truncate(directories[0] / f"{lost}-0" / f"{0:020}.log", 0)

        with pytest.raises(KafkaError) as refused:
            connection.produce(lost, one_record(b"after"))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert connection.produce(kept, one_record(b"after")) == 1

    assert not broker.has_ended
    assert "offline" in broker.output()
