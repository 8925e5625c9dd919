"""Topics that go and come back under the same name."""

from __future__ import annotations

from pathlib import Path

from tests.faults.checker.history import Invoke, Ok, Poll, read_history
from tests.faults.experiment import Experiment


def test_f42_a_topic_made_anew_has_no_record_of_its_namesake(experiment: Experiment, tmp_path: Path) -> None:
    """Producers and followers are at it the whole time; whatever was acknowledged before the deletion stays gone."""
    cluster = experiment.cluster
    experiment.start()
    for _ in range(2):
        old = cluster.state.topic_id(experiment.topic)
        acked = acked_values(tmp_path)
        cluster.delete_topic(experiment.topic)
        cluster.create_topic(experiment.topic, experiment.replicas)
        assert cluster.state.topic_id(experiment.topic) != old
        experiment.wait_for_acks(20)
    experiment.stop_workload()
    experiment.wait_for_full_isr()
    experiment.drain(up_to_known_offsets=False)

    events = read_history(tmp_path / "history-drain.jsonl").events
    read = {record.value for event in events if isinstance(event, Poll) for record in event.records}
    assert read
    assert not read & acked


def acked_values(folder: Path) -> set[str]:
    """Return what was acknowledged so far."""
    events = read_history(folder / "history-clients.jsonl").events
    values = {(event.worker, event.op): event.value for event in events if isinstance(event, Invoke)}
    return {values[event.worker, event.op] for event in events if isinstance(event, Ok)}
