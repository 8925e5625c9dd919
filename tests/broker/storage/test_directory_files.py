"""A directory belongs to one broker, is used by one process, and its names say what is in it."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.storage.directory_files import (
    DirectoryKind,
    DirectoryLock,
    MetaProperties,
    PartitionDirectory,
    claim_directory,
    directory_name,
    parse_directory_name,
    read_clean_shutdown,
    read_meta_properties,
    read_topic_id,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_topic_id,
)
from ottla.broker.storage.errors import StorageError
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.primitives import uuid_from_text

OWNER = MetaProperties(3, "bXktY2x1c3Rlci1pZC0xMg")
TOPIC_ID = uuid_from_text("Zm9vYmFyYmF6cXV4MTIzNA")
HEX = "0123456789abcdef" * 2

topics = st.text("ab0._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))


def test_a_new_directory_is_marked_as_its_owners(tmp_path: Path) -> None:
    """The file is written once, and read by every later start."""
    assert read_meta_properties(tmp_path) is None
    claim_directory(tmp_path, OWNER)
    claim_directory(tmp_path, OWNER)

    expected = "version=0\nbroker.id=3\ncluster.id=bXktY2x1c3Rlci1pZC0xMg\n"
    assert expected == (tmp_path / "meta.properties").read_text()
    assert read_meta_properties(tmp_path) == OWNER


def test_a_file_that_java_wrote_is_understood(tmp_path: Path) -> None:
    """Comments, another order, escapes and keys that are not ours."""
    text = "#\n#Thu Jan 01 00:00:00 UTC 1970\ncluster.id=a\\=b\\:c\ndirectory.id=xyz\n\nbroker.id = 3\nversion=0\n"
    (tmp_path / "meta.properties").write_text(text)

    assert read_meta_properties(tmp_path) == MetaProperties(3, "a=b:c")


@pytest.mark.parametrize(
    ("owner", "advice"),
    [
        (MetaProperties(4, OWNER.cluster_id), "belongs to broker 3, and this is broker 4; set broker.id=3"),
        (MetaProperties(3, "another"), "correct zookeeper.connect"),
    ],
)
def test_a_directory_of_somebody_else_is_refused_with_advice(
    tmp_path: Path, owner: MetaProperties, advice: str
) -> None:
    """The error says whose it is and what to do."""
    claim_directory(tmp_path, OWNER)

    with pytest.raises(StorageError, match=advice):
        claim_directory(tmp_path, owner)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version=1\nnode.id=3\ncluster.id=x\n",
        b"version=0\nbroker.id=3\n",
        b"version=0\nbroker.id=3\ncluster.id=\n",
        b"version=0\nbroker.id=three\ncluster.id=x\n",
        b"version=0\nbroker.id=-1\ncluster.id=x\n",
        b"version=0\nbroker.id=9999999999\ncluster.id=x\n",
        b"version=0\nbroker.id=\xff\ncluster.id=x\n",
        b"#" * 100_000,
    ],
)
def test_malformed_meta_properties_are_refused(tmp_path: Path, content: bytes) -> None:
    """A directory of which nobody can tell whose it is, is not used."""
    (tmp_path / "meta.properties").write_bytes(content)

    with pytest.raises(StorageError, match=r"meta\.properties"):
        claim_directory(tmp_path, OWNER)


def test_a_topic_id_comes_back_as_written(tmp_path: Path) -> None:
    """Two lines, as Kafka writes them."""
    assert read_topic_id(tmp_path) is None
    write_topic_id(tmp_path, TOPIC_ID)

    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: Zm9vYmFyYmF6cXV4MTIzNA\n"
    assert read_topic_id(tmp_path) == TOPIC_ID
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: Zm9vYmFyYmF6cXV4MTIzNA")
    assert read_topic_id(tmp_path) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 1\ntopic_id: Zm9vYmFyYmF6cXV4MTIzNA\n",
        b"version: 0\ntopic_id: Zm9vYmFyYmF6cXV4MTIzN\n",
        b"version: 0\ntopic_id: Zm9vYmFyYmF6cXV4MTIzNB\n",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
        b"version: 0\n",
        b"version: 0\ntopic_id: \xff\xff\n",
    ],
)
def test_malformed_partition_metadata_is_refused(tmp_path: Path, content: bytes) -> None:
    """A topic id is whole, canonical and not zero."""
    (tmp_path / "partition.metadata").write_bytes(content)

    with pytest.raises(StorageError, match=r"partition\.metadata"):
        read_topic_id(tmp_path)


def test_a_clean_shutdown_is_told_to_the_next_start_only(tmp_path: Path) -> None:
    """Written at the end, read and removed at the begin."""
    assert read_clean_shutdown(tmp_path) is None
    remove_clean_shutdown(tmp_path)
    write_clean_shutdown(tmp_path, 77)

    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":77}'
    assert read_clean_shutdown(tmp_path) == 77
    remove_clean_shutdown(tmp_path)
    assert read_clean_shutdown(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 60_000,
        b"x" * 100_000,
        b'{"version":1,"brokerEpoch":7}',
        b'{"version":0}',
        b'{"version":0,"brokerEpoch":"7"}',
        b'{"version":0,"brokerEpoch":true}',
        b'{"version":0,"brokerEpoch":-2}',
        b'{"version":0,"brokerEpoch":' + b"9" * 5000 + b"}",
    ],
)
def test_a_malformed_clean_shutdown_is_none(tmp_path: Path, content: bytes) -> None:
    """In doubt the logs are scanned."""
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)

    assert read_clean_shutdown(tmp_path) is None


def test_the_end_of_a_clean_shutdown_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file came back after a crash, nobody would look for torn batches."""
    write_clean_shutdown(tmp_path, 77)
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append((tmp_path / ".kafka_cleanshutdown").exists()))
    remove_clean_shutdown(tmp_path)

    assert synced == [False]


def test_a_directory_has_one_user_at_a_time(tmp_path: Path) -> None:
    """The second one is told which directory, and that another broker has it."""
    with DirectoryLock(tmp_path) as lock:
        with pytest.raises(StorageError, match=f"{tmp_path} is in use by another broker"):
            DirectoryLock(tmp_path)
        lock.release()
        DirectoryLock(tmp_path).release()


def test_a_lock_holds_against_other_processes(tmp_path: Path) -> None:
    """It is the system's lock, and it goes with its process."""
    code = (
        "import sys, pathlib; from ottla.broker.storage.directory_files import DirectoryLock\n"
        "try: DirectoryLock(pathlib.Path(sys.argv[1])); print('mine')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )

    def other() -> str:
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    with DirectoryLock(tmp_path):
        assert other().startswith(f"StorageError {tmp_path} is in use")
    assert other() == "mine\n"
    DirectoryLock(tmp_path).release()


def test_other_failures_to_lock_are_not_mistaken_for_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is missing, or on a file system without locks, is the system's error."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "missing")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="no locks available"):
        DirectoryLock(tmp_path)


@given(topic=topics, partition=st.integers(0, 99_999), kind=st.sampled_from(DirectoryKind))
def test_names_are_parsed_as_they_are_made(topic: str, partition: int, kind: DirectoryKind) -> None:
    """Also for topics with dashes, dots and digits; only a directory on its way out may lose part of its topic."""
    name_needs = len(f"-{partition}") + (0 if kind is DirectoryKind.CURRENT else 34 + len(kind.value))
    named = TopicPartition(topic, partition)
    if kind is DirectoryKind.FUTURE and len(topic) + name_needs > 255:
        with pytest.raises(StorageError):
            directory_name(named, kind)
        return
    name = directory_name(named, kind)

    assert len(name) <= 255
    kept = topic if kind is DirectoryKind.CURRENT else topic[: 255 - name_needs]
    assert parse_directory_name(name) == PartitionDirectory(TopicPartition(kept, partition), kind)


def test_a_directory_on_its_way_out_has_its_long_topic_cut() -> None:
    """Nobody looks for it by topic any more; one that is still needed keeps its whole name."""
    partition = TopicPartition("t" * 249, 0)

    for kind in (DirectoryKind.DELETE, DirectoryKind.STRAY):
        name = directory_name(partition, kind)
        assert len(name) == 255
        assert parse_directory_name(name) == PartitionDirectory(TopicPartition("t" * (219 - len(kind.value)), 0), kind)
    with pytest.raises(StorageError, match="exceeds 255"):
        directory_name(partition, DirectoryKind.FUTURE)


def test_a_partition_with_a_name_too_long_is_refused() -> None:
    """Its directory could not be made."""
    assert len(directory_name(TopicPartition("t" * 249, 99_999))) == 255
    with pytest.raises(StorageError, match="exceeds 255"):
        directory_name(TopicPartition("t" * 249, 100_000))


@pytest.mark.parametrize("kind", DirectoryKind, ids=lambda kind: kind.name)
@pytest.mark.parametrize("topic", ["", ".", "..", "../orders", "/etc/passwd", "a/b", "a\\b", "a\0", "ä", "t" * 250])
def test_a_name_that_is_no_topic_becomes_no_path(topic: str, kind: DirectoryKind) -> None:
    """Whoever sent it: also the controller, or whoever has its rights."""
    with pytest.raises(KafkaError) as refused:
        directory_name(TopicPartition(topic, 0), kind)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_a_number_that_is_no_partition_becomes_no_path(partition: int) -> None:
    """At the next start, nobody would know what the directory is."""
    with pytest.raises(KafkaError):
        directory_name(TopicPartition("orders", partition))


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", PartitionDirectory(TopicPartition("orders", 0), DirectoryKind.CURRENT)),
        ("page-views-12", PartitionDirectory(TopicPartition("page-views", 12), DirectoryKind.CURRENT)),
        ("a-1-2", PartitionDirectory(TopicPartition("a-1", 2), DirectoryKind.CURRENT)),
        ("--0", PartitionDirectory(TopicPartition("-", 0), DirectoryKind.CURRENT)),
        (f"a-0.{HEX}-delete-3", PartitionDirectory(TopicPartition(f"a-0.{HEX}-delete", 3), DirectoryKind.CURRENT)),
        (f"a-0.{HEX}-delete", PartitionDirectory(TopicPartition("a", 0), DirectoryKind.DELETE)),
        (f"a-0.{HEX}-future", PartitionDirectory(TopicPartition("a", 0), DirectoryKind.FUTURE)),
        (f"a-0.{HEX}-stray", PartitionDirectory(TopicPartition("a", 0), DirectoryKind.STRAY)),
        (f"a-0.{HEX}-gone", None),
        (f"a-0.{HEX[1:]}-delete", None),
        (f"a.{HEX}-delete", None),
        ("orders", None),
        ("-0", None),
        ("orders-", None),
        ("orders--", None),
        ("orders-01", None),
        ("orders-2147483648", None),
        ("orders-\u0661", None),
        ("or ders-0", None),
        ("orders-0\n", None),
        ("", None),
        ("t" * 250 + "-0", None),
    ],
)
def test_names_say_what_a_directory_is(name: str, parsed: PartitionDirectory | None) -> None:
    """The last dash before the number parts topic from partition."""
    assert parsed == parse_directory_name(name)
