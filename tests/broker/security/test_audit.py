"""The audit stream: what an event says, how many a client may cause, and that nobody waits for the topic."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from tests.broker.handlers.small_cluster import SmallCluster
from tests.kit.clock import FakeClock
from tests.kit.waiting import until

from ottla.broker.cluster.broker_link import BrokerLink
from ottla.broker.observability.audit_metrics import AuditCollector
from ottla.broker.security.audit.audit import Audit, AuditSubject
from ottla.broker.security.audit.audit_topic import AuditTopic
from ottla.broker.security.session import ANONYMOUS, Session
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.records import RecordBatch

TOPIC, READ = ResourceType.TOPIC, AclOperation.READ
EVENT = {"event": "topic_created", "resource": "Topic:t"}


class Heard:
    """An audit stream, and the events in it."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.clock = FakeClock(0.0)
        self.audit = Audit(self.events.append, monotonic=self.clock, wall=lambda: 1.5)

    def refuse(self, principal: str, *names: str, host: str = "10.0.0.1") -> None:
        """Refuse a client to read topics."""
        subject = AuditSubject(Session("CLIENTS", host, principal), "app")
        self.audit.denied(subject, "Fetch", READ, TOPIC, names)


def test_an_event_says_who_did_what_where_and_when() -> None:
    """The same fields for all; a change says what is different."""
    heard = Heard()
    heard.refuse("User:alice", "orders")
    subject = AuditSubject(Session("CLIENTS", "10.0.0.2", "User:bob"), "cli")
    heard.audit.changed("options_altered", subject, "IncrementalAlterConfigs", "Topic:t", {"retention.ms": ("1", "2")})
    common = {"time": "1970-01-01T00:00:01.500+00:00", "listener": "CLIENTS"}
    assert heard.events == [
        {
            **common,
            "event": "access_denied",
            "principal": "User:alice",
            "address": "10.0.0.1",
            "client_id": "app",
            "operation": "Read",
            "resource": "Topic:orders",
            "api": "Fetch",
        },
        {
            **common,
            "event": "options_altered",
            "principal": "User:bob",
            "address": "10.0.0.2",
            "client_id": "cli",
            "operation": "IncrementalAlterConfigs",
            "resource": "Topic:t",
            "change": {"retention.ms": ["1", "2"]},
        },
    ]


def test_a_noisy_client_does_not_silence_others() -> None:
    """The limit is for each principal; what is left out is counted in its next event."""
    heard = Heard()
    heard.refuse("User:noisy", *(f"t-{number}" for number in range(1000)))
    assert len(heard.events) == 100
    heard.refuse("User:quiet", "t")
    assert heard.events[-1]["principal"] == "User:quiet"
    assert "more" not in heard.events[-1]
    heard.clock.now += 10
    heard.refuse("User:noisy", "t")
    assert (heard.events[-1]["principal"], heard.events[-1]["more"]) == ("User:noisy", 900)


def test_strangers_are_told_apart_by_their_address() -> None:
    """They all have the same name."""
    heard = Heard()
    heard.refuse(ANONYMOUS, *(f"t-{number}" for number in range(1000)))
    heard.refuse(ANONYMOUS, "t", host="10.0.0.2")
    assert heard.events[-1]["address"] == "10.0.0.2"


def test_the_same_refusal_is_noted_once_in_a_while() -> None:
    """However often a client tries; changes are all noted."""
    heard = Heard()
    heard.refuse("User:alice", *["t"] * 50)
    assert len(heard.events) == 1
    subject = AuditSubject(Session("CLIENTS", "10.0.0.2", "User:bob"))
    for _ in range(200):
        heard.audit.changed("topic_created", subject, "CreateTopics", "Topic:t", {})
    assert len(heard.events) == 201


def test_principals_without_end_cost_bounded_memory() -> None:
    """Those that were active last are remembered."""
    heard = Heard()
    for number in range(5000):
        heard.refuse(f"User:{number}" + "x" * 1000, "t")
    assert len(heard.audit._limits._by_principal) == 1000
    assert max(map(len, heard.audit._limits._by_principal)) <= 256


def test_names_of_clients_are_cut_and_made_printable() -> None:
    """In every field, nested ones included."""
    heard = Heard()
    evil = "evil\n\x1b[2J" + "x" * 10_000
    subject = AuditSubject(Session("CLIENTS", "10.0.0.1", f"User:{evil}"), evil)
    heard.audit.login_failed(subject, "PLAIN", evil)
    heard.audit.changed("acls_created", subject, "CreateAcls", evil, {evil: [evil] * 1000, "n": {"m": evil}})
    text = json.dumps(heard.events)
    assert "\\n" not in text.replace("\\\\n", "")
    assert "\\u001b" not in text
    assert len(text) < 100_000


def audited(small: SmallCluster) -> list[Any]:
    """Return a list that gets the events of a cluster."""
    events: list[Any] = []
    small.services.security.audit.sink = events.append
    return events


def test_handlers_note_what_they_have_changed() -> None:
    """Old and new values; of passwords only that they were set."""
    small = SmallCluster()
    events = audited(small)
    config = CreatableTopicConfig(name="retention.ms", value="1")
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=[], configs=[config])
    small.ask(Api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=0))
    small.zookeeper.overrides["t"] = {"retention.ms": "1"}
    option = AlterableConfig(name="retention.ms", config_operation=0, value="2")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[option])
    for validate_only in (True, False):
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        small.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, request)
    entity = RequestEntityData(entity_type="user", entity_name="alice")
    quota = RequestEntryData(entity=[entity], ops=[OpData(key="producer_byte_rate", value=7.0, remove=False)])
    small.ask(Api.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=[quota], validate_only=False))
    password = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"planted-salt", salted_password=b"planted-password"
    )
    small.ask(
        Api.ALTER_USER_SCRAM_CREDENTIALS, 0, AlterUserScramCredentialsRequest(deletions=[], upsertions=[password])
    )
    assert [(event["event"], event["resource"], event["change"]) for event in events] == [
        (
            "topic_created",
            "Topic:t",
            {"partitions": [None, 3], "replication_factor": [None, 1], "options": {"retention.ms": [None, "1"]}},
        ),
        ("options_altered", "Topic:t", {"retention.ms": ["1", "2"]}),
        ("quotas_altered", "Quota:users/alice", {"producer_byte_rate": [None, "7"]}),
        ("user_altered", "User:alice", {"SCRAM-SHA-256": "set"}),
    ]
    assert "planted" not in json.dumps(events)


class FakeLink:
    """A link to a leader that takes records, or fails."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.error: Exception | None = None
        self.is_held = threading.Event()
        self.is_held.set()

    def request(self, _api: Api, build: Any) -> ProduceResponse:
        """Take what is produced."""
        self.is_held.wait(60)
        if self.error is not None:
            raise self.error
        (topic,) = build(9).topic_data
        batch = RecordBatch(memoryview(topic.partition_data[0].records))
        self.records += [json.loads(bytes(record.value or b"")) for record in batch.records()]
        row = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=[row])])

    def close(self) -> None:
        """Do nothing."""


def topic_of(link: FakeLink, leaders: list[int | None] | None = None) -> AuditTopic:
    """A topic that a link leads to; `leaders` are told one after the other, the last one for ever."""
    told = leaders or [1]

    def leader() -> int | None:
        return told.pop(0) if len(told) > 1 else told[0]

    return AuditTopic(leader, lambda _broker: cast(BrokerLink, link), lambda: None)


def test_events_are_written_in_order_and_nobody_waits() -> None:
    """Also those of before the topic has a leader."""
    link = FakeLink()
    topic = topic_of(link, [None, None, 1])
    for number in range(100):
        topic.add({"event": "login", "number": number})
    topic.start()
    until(lambda: topic.written == 100, "all are written")
    topic.close()
    assert [event["number"] for event in link.records] == list(range(100))


def test_a_topic_that_cannot_be_written_drops_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is bounded, drops are counted, and writing goes on afterwards."""
    monkeypatch.setattr("ottla.broker.security.audit.audit_topic._QUEUE_BYTES_MAX", 1000)
    monkeypatch.setattr("ottla.broker.security.audit.audit_topic._PAUSE_SECONDS", 0.01)
    link = FakeLink()
    link.error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    topic = topic_of(link)
    topic.start()
    for _ in range(1000):
        topic.add(EVENT)
    assert topic.dropped >= 900
    kept = 1000 - topic.dropped
    link.error = None
    until(lambda: topic.written == kept, "what fitted is written")
    topic.close()
    counts = {family.name: family.samples[0].value for family in AuditCollector(topic).collect()}
    assert counts == {"ottla_audit_events_written": kept, "ottla_audit_events_dropped": 1000 - kept}


def test_closing_does_not_wait_for_a_dead_leader() -> None:
    """What is left is dropped, and counted."""
    link = FakeLink()
    link.error = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
    topic = topic_of(link)
    topic.start()
    topic.add(EVENT)
    topic.close()
    assert (topic.written, topic.dropped) == (0, 1)
    topic.add(EVENT)
    assert topic.dropped == 2


def test_the_page_names_every_metric_of_the_stream() -> None:
    """Nobody looks for what is not written down."""
    page = (Path(__file__).parents[3] / "docs" / "METRICS.md").read_text()
    families = AuditCollector(topic_of(FakeLink())).collect()
    assert [family.name for family in families if f"`{family.name}_total`" not in page] == []
    assert list(AuditCollector(None).collect()) == []
