"""Records through the console: read, filtered, followed, exported, written, sent again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
import pytest_asyncio
from tests.console.console_client import ConsoleClient, running_console
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until_async

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import NewTopic
from ottla.client.producer.partitioner import partition_of_key
from ottla.client.producer.producer import Producer
from ottla.console.records.reading import Line, RecordStream
from ottla.protocol.identifiers import TopicPartition

COUNT = 60


@pytest_asyncio.fixture
async def records(broker: BrokerProcess, topic: str) -> AsyncIterator[str]:
    """A topic with three partitions and sixty records, each with its number and its time."""
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=3)])
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(COUNT):
            value = json.dumps({"n": number, "user": "ada" if number % 10 == 0 else "bob"}).encode()
            await producer.send(
                topic, value, key=b"%d" % number, partition=number % 3, timestamp_ms=1_700_000_000_000 + number * 1000
            )
    yield topic


def numbers(lines: list[dict[str, object]]) -> list[int]:
    """Return the numbers in the values of records."""
    return [json.loads(line["value"]["text"])["n"] for line in lines if line["type"] == "record"]  # type: ignore[index]


async def test_the_newest_records_of_all_partitions(console: ConsoleClient, records: str) -> None:
    """By time, oldest first; the last line says where to go on."""
    lines = await console.lines(f"/topics/{records}/records", **{"from": "-10", "limit": 10})
    assert numbers(lines) == list(range(50, 60))
    assert lines[-1]["type"] == "end"
    assert lines[-1]["positions"] == lines[-1]["ends"] == {"0": "20", "1": "20", "2": "20"}


async def test_a_scan_goes_on_where_it_ended(console: ConsoleClient, records: str) -> None:
    """Parts of seven records have all of them, each once."""
    found: list[int] = []
    query: dict[str, object] = {"from": "start", "limit": 7}
    while True:
        lines = await console.lines(f"/topics/{records}/records", **query)
        found += numbers(lines)
        if lines[-1]["reason"] == "end":
            break
        query["positions"] = ",".join(f"{number}:{at}" for number, at in lines[-1]["positions"].items())
    assert sorted(found) == list(range(COUNT))


async def test_records_by_time_partition_and_filter(console: ConsoleClient, records: str) -> None:
    """A time, a partition, and an expression, each alone."""
    path = f"/topics/{records}/records"
    late = await console.lines(path, **{"from": "@1700000055000", "limit": 100})
    assert sorted(numbers(late)) == [55, 56, 57, 58, 59]
    one = await console.lines(path, **{"from": "start", "partition": "2", "limit": 100})
    assert numbers(one) == list(range(2, COUNT, 3))
    ada = await console.lines(path, **{"from": "start", "filter": 'value.user == "ada" and offset > 0', "limit": 100})
    assert sorted(numbers(ada)) == [10, 20, 30, 40, 50]
    newest = await console.lines(path, **{"from": "-100", "filter": 'value["user"] == "ada"', "limit": 2})
    assert numbers(newest) == [40, 50]


async def test_what_cannot_be_read_is_a_problem(console: ConsoleClient, records: str) -> None:
    """Before the stream begins, so that it has a status."""
    path = f"/topics/{records}/records"
    assert (await console.get(path, status=400, filter="open(1)"))["title"] == "The filter is not valid"
    await console.get(path, status=400, partition="9")
    await console.get(path, status=400, **{"from": "noon"})
    await console.get(path, status=400, positions="1=2")
    assert (await console.get("/topics/nothing/records", status=404))["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_new_records_are_followed(console: ConsoleClient, broker: BrokerProcess, records: str) -> None:
    """From the end on; what is too much for one second is counted, not shown."""
    query = {"from": "end", "follow": "true", "per_second": "5"}
    async with console.http.get(f"{console.base}/api/v1/topics/{records}/records", params=query) as answer:
        first = json.loads(await answer.content.readline())
        assert first["type"] == "progress"
        async with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(100, 200):
                await producer.send(records, b'{"n": %d}' % number, partition=0)
        shown: list[int] = []
        while True:
            line = json.loads(await answer.content.readline())
            shown += numbers([line])
            if line["type"] == "progress" and line["matched"] == "100":
                break
    assert shown[:5] == [100, 101, 102, 103, 104]
    assert int(line["skipped"]) == 100 - len(shown)


async def test_a_stream_ends_with_its_client(broker: BrokerProcess, records: str) -> None:
    """Nothing is left running for a page that was closed."""
    async with running_console(broker.bootstrap) as console:
        sessions = console.server._sessions
        assert sessions is not None
        query = {"follow": "true", "from": "end"}
        async with console.http.get(f"{console.base}/api/v1/topics/{records}/records", params=query) as answer:
            await answer.content.readline()
            assert sessions.streams == 1
        await until_async(lambda: not sessions.streams, "the stream has ended")


async def test_streams_are_limited(broker: BrokerProcess, records: str) -> None:
    """One too many is refused with a sentence, and works again when another has ended; pages keep their events."""
    async with running_console(broker.bootstrap, record_streams_max=2, event_streams_max=3) as console:
        url = f"{console.base}/api/v1/topics/{records}/records"
        open_streams = [await console.http.get(url, params={"follow": "true", "from": "end"}) for _ in range(2)]
        problem = await console.get(f"/topics/{records}/records", status=429)
        assert problem["title"] == "Too many open streams"
        events = [await console.http.get(f"{console.base}/api/v1/events") for _ in range(3)]
        assert [each.status for each in events] == [200, 200, 200]
        assert (await console.get("/events", status=429))["title"] == "Too many open streams"
        open_streams += events
        for each in open_streams:
            each.close()
        sessions = console.server._sessions
        assert sessions is not None
        await until_async(lambda: not sessions.streams, "the streams have ended")
        await console.lines(f"/topics/{records}/records")


async def test_an_export_has_all_records(console: ConsoleClient, records: str) -> None:
    """As a file, with a last line that says that it is complete."""
    url = f"{console.base}/api/v1/topics/{records}/export"
    async with console.http.get(url) as answer:
        assert answer.headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{records}.ndjson"
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
    assert sorted(numbers(lines)) == list(range(COUNT))
    assert (lines[-1]["type"], lines[-1]["reason"]) == ("end", "end")


async def test_a_record_is_written_and_sent_again(console: ConsoleClient, records: str) -> None:
    """Byte for byte, with headers; the answers have the commands."""
    body = {
        "key": {"text": "kéy"},
        "value": {"base64": "AP/+"},
        "headers": [{"name": "a", "value": {"text": "1"}}, {"name": "none"}],
        "partition": 1,
        "timestamp_ms": "1600000000000",
    }
    planned = await console.post(f"/topics/{records}/records", {**body, "dry_run": True})
    assert (planned["is_dry_run"], planned["partition"], planned["offset"]) == (True, 1, None)
    assert planned["changes"][0]["after"] == "key of 4 bytes, value of 3 bytes, 2 headers"
    written = await console.post(f"/topics/{records}/records", body)
    assert (written["partition"], written["offset"], written["timestamp_ms"]) == (1, "20", "1600000000000")
    assert written["command"] == planned["command"]
    assert written["command"] == (
        f"ottla topic produce {records} --partition 1 --key 'kéy' --header a=1 --header none= --file FILE"
    )
    planned = await console.post(f"/topics/{records}/resend", {"partition": 1, "offset": "20", "dry_run": True})
    again = await console.post(f"/topics/{records}/resend", {"partition": 1, "offset": "20"})
    assert (planned["offset"], again["partition"], again["offset"]) == (None, 1, "21")
    assert planned["command"] == again["command"]
    assert f"ottla topic consume {records} --partition 1 --offset 20 --num 1" in again["command"]
    lines = await console.lines(f"/topics/{records}/records", **{"from": "20", "partition": "1", "limit": 5})
    first, second = (line for line in lines if line["type"] == "record")
    for field in ("key", "value", "headers"):
        assert first[field] == second[field]
    assert first["value"]["text"] == "00fffe"
    assert first["headers"][1]["value"]["format"] == "null"
    await console.post(f"/topics/{records}/resend", {"partition": 1, "offset": "99"}, status=404)
    await console.post(f"/topics/{records}/records", {"value": {"text": "a", "base64": "YQ=="}}, status=400)


async def test_a_preview_says_where_a_record_would_go_and_what_is_wrong_with_it(
    console: ConsoleClient, topic: str
) -> None:
    """The partition of its key, and what the options of the topic forbid; the command can be pasted."""
    configs = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    await console.post("/topics", {"name": topic, "partitions": 3, "configs": configs})
    path = f"/topics/{topic}/records"

    async def is_known() -> bool:
        topics = await console.get("/topics", q=topic)
        return [row["partitions"] for row in topics["items"]] == [3]

    await until_async(is_known, "the console knows the topic")
    planned = await console.post(path, {"key": {"text": "k"}, "value": {"text": "-5 it's"}, "dry_run": True})
    assert (planned["partition"], planned["warnings"]) == (partition_of_key(b"k", 3), [])
    assert planned["command"] == f"ottla topic produce {topic} --key k -- '-5 it'\"'\"'s'"
    for body, words in (
        ({"value": {"text": "v"}}, "without a key"),
        ({"key": {"text": "k"}}, "tombstone"),
        ({"key": {"text": "k"}, "value": {"text": "v" * 1001}}, "more than 1000 bytes"),
    ):
        (warning,) = (await console.post(path, {**body, "dry_run": True}))["warnings"]
        assert words in warning
    await console.post(path, {"partition": 3, "dry_run": True}, status=400)
    assert (await console.get(f"/topics/{topic}"))["records"] == "0"


async def test_a_dead_letter_topic_is_redriven(console: ConsoleClient, records: str) -> None:
    """Each record goes where its header says; first as a preview, and never those without a topic."""
    dead = f"{records}.dead"
    await console.post("/topics", {"name": dead, "partitions": 1})
    for number, target in enumerate((records, records, "nothing", dead)):
        header = {"name": "origin", "value": {"text": target}}
        await console.post(f"/topics/{dead}/records", {"value": {"text": f'{{"n": {number}}}'}, "headers": [header]})
    body = {"target_header": "origin", "filter": "value.n >= 1"}
    preview = await console.post(f"/topics/{dead}/redrive", body)
    assert preview["changes"] == [{"subject": records, "before": None, "after": "1 records", "error": None}]
    assert "2 records name no topic that exists; they stay where they are." in preview["warnings"]
    before = await console.get(f"/topics/{records}")
    await console.post(f"/topics/{dead}/redrive", {**body, "dry_run": False})
    after = await console.get(f"/topics/{records}")
    assert int(after["records"]) == int(before["records"]) + 1
    await console.post(f"/topics/{dead}/redrive", {"target_topic": dead}, status=400)
    await console.post(f"/topics/{dead}/redrive", {}, status=400)


async def test_records_are_trimmed_by_the_name_of_their_topic(console: ConsoleClient, records: str) -> None:
    """A preview first, and the name typed again."""
    preview = await console.post(f"/topics/{records}/trim", {"to": "5", "partitions": [0]})
    assert preview["changes"] == [{"subject": f"{records}-0", "before": "0", "after": "5", "error": None}]
    await console.post(f"/topics/{records}/trim", {"to": "end", "dry_run": False}, status=400)
    await console.post(f"/topics/{records}/trim", {"to": "5", "partitions": [0], "confirm": records, "dry_run": False})
    assert (await console.get(f"/topics/{records}"))["records"] == "55"


async def test_a_stream_that_fails_ends_with_the_problem(
    console: ConsoleClient, records: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status is sent already, so the last line says what went wrong; nothing of it stays open."""
    lines_of = RecordStream.lines

    async def failing(stream: RecordStream) -> AsyncGenerator[list[Line]]:
        async with contextlib.aclosing(lines_of(stream)) as parts:
            yield await anext(parts)
            raise ZeroDivisionError

    monkeypatch.setattr(RecordStream, "lines", failing)
    seen = await console.lines(f"/topics/{records}/records", **{"from": "start", "limit": 5})
    assert (len(numbers(seen)), seen[-1]["type"], seen[-1]["problem"]["status"]) == (5, "error", 500)
    sessions = console.server._sessions
    assert sessions is not None
    await until_async(lambda: not sessions.streams, "the stream has ended")


async def test_internal_topics_are_decoded(console: ConsoleClient, broker: BrokerProcess, records: str) -> None:
    """The committed offset of a group, by its fields; and a filter on them."""
    group = f"group-{records}"
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.alter_group_offsets(group, {TopicPartition(records, 1): 7})
    found = await console.lines(
        "/topics/__consumer_offsets/records", **{"from": "start", "filter": f'key.group == "{group}"', "limit": 5}
    )
    line = next(each for each in found if each["type"] == "record" and "OffsetCommitKey" in each["key"]["text"])
    assert (line["key"]["format"], line["value"]["format"]) == ("internal", "internal")
    assert json.loads(line["key"]["text"]) == {
        "kind": "OffsetCommitKey",
        "group": group,
        "topic": records,
        "partition": 1,
    }
    assert json.loads(line["value"]["text"])["offset"] == 7
