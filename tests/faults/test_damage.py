"""Bits that change on the disk of one replica."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.cluster import Cluster
from tests.faults.experiment import Experiment, check_valid
from tests.faults.live import fetch_request
from tests.faults.steps import ACK_GAP_MAX_S, each_row, others, replicas_led_by
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.records import BATCH_HEADER_BYTES, RecordBatch, batches

FETCH_VERSION = 12


@pytest.mark.parametrize(
    "is_clean", [True, pytest.param(False, marks=pytest.mark.long_faults)], ids=["clean", "killed"]
)
@each_row
def test_f21_a_damaged_replica_serves_no_damaged_record_and_is_made_anew(
    experiment: Experiment, is_clean: bool, row: dict[str, str]
) -> None:
    """It leads, finds a batch with a wrong CRC, and gives the partition up to those who have it whole."""
    cluster = experiment.cluster
    damaged, leader = others(cluster.state.controller())
    # The damaged one is next in line.
    rest = [broker for broker in cluster.brokers if broker not in (damaged, leader)]
    experiment.start([[leader, damaged, *rest], *replicas_led_by(*others(damaged))], **row)
    experiment.wait_for_acks(100)
    with experiment.fault("bit flip", f"broker {damaged}", 2 * ACK_GAP_MAX_S) as fault:
        process = cluster.brokers[damaged]
        if is_clean:
            # All is on disk and marked so: nobody looks at it when the broker starts.
            assert process.stop() == 0
        else:
            process.kill()
        offset = flip_a_bit(process.partition_dir(experiment.topic))
        cluster.start_brokers(damaged)
        experiment.wait_for_full_isr()

        assert cluster.brokers[leader].stop() == 0
        experiment.wait_for(lambda state: state.leader != leader)
        served = read_all(cluster, damaged, experiment.topic)
        cluster.start_brokers(leader)
        experiment.wait_for_full_isr()
        fault.proof = f"a bit of the batch at {offset} was flipped; asked for all, the broker said {served}"
        experiment.wait_for_acks(20)

    check_valid(experiment.finish())


def flip_a_bit(folder: Path) -> int:
    """Change one bit in the records of the middle batch; return the batch's offset."""
    segment = min(folder.glob("*.log"))
    content = bytearray(segment.read_bytes())
    position = 0
    found: list[tuple[int, RecordBatch]] = []
    try:
        for batch in batches(bytes(content)):
            found.append((position, batch))
            position += batch.size
    except CorruptBatchError:
        # A broker that was killed leaves zeroes behind the last batch.
        pass
    position, batch = found[len(found) // 2]
    content[position + BATCH_HEADER_BYTES + 3] ^= 0x10
    with segment.open("r+b") as file:
        file.write(content)
    return batch.base_offset


def read_all(cluster: Cluster, broker: int, topic: str) -> str:
    """Fetch from the beginning until the end or an error, and check every batch; return what stopped it."""
    offset = 0
    said = ""

    def is_over() -> bool:
        nonlocal offset, said
        try:
            response: FetchResponse = cluster.request(broker, Api.FETCH, FETCH_VERSION, fetch_request(topic, offset))
        except KafkaError as error:
            said = str(error)
            return True
        answer = response.responses[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            said = ErrorCode.of(answer.error_code).name
            return True
        for batch in batches(bytes(answer.records or b"")):
            batch.check()
            offset = batch.next_offset
        said = f"{offset} whole records"
        return offset >= answer.high_watermark

    until(is_over, f"broker {broker} was asked for everything")
    return said
