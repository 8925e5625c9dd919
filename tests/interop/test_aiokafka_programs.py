"""Programs written for aiokafka print the same with `ottla.aiokafka`, with nothing changed but the import."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.consumer.consuming import create_topic
from tests.kit.broker_process import BrokerProcess
from tests.kit.kafka_process import VERSIONS, new_kafka
from tests.kit.zookeeper import ZooKeeperServer

PROGRAMS = Path(__file__).parent / "aiokafka_programs"
# The topics that a program expects, with the number of their partitions.
TOPICS = {
    "administration": {},
    "batches": {"batches": 1},
    "failures": {"failures": 3},
    "group_rebalance": {"shared": 4},
    "manual_commits": {"jobs": 1},
    "produce_consume": {"orders": 1},
    "seeking": {"history": 2},
    "subscriptions": {"left": 1, "right": 1},
    "transactions": {"in": 1, "out": 2},
}
DEADLINE_S = 240
IMPORT = re.compile(r"^(from|import) aiokafka\b", re.MULTILINE)


@pytest.fixture(scope="module", params=["ottla", *(pytest.param(one, marks=pytest.mark.long) for one in VERSIONS)])
def bootstrap(
    request: pytest.FixtureRequest, zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of our broker, then of Kafka's."""
    if request.param == "ottla":
        broker: BrokerProcess = request.getfixturevalue("broker")
        yield broker.bootstrap
        return
    with new_kafka(request.param, tmp_path_factory.mktemp("kafka"), zookeeper_server) as process:
        yield process.bootstrap


@pytest.mark.parametrize("name", TOPICS)
async def test_a_program_prints_the_same_with_both_imports(name: str, bootstrap: str, tmp_path: Path) -> None:
    """And ends without an error."""
    text = (PROGRAMS / f"{name}.py").read_text()
    changed, count = IMPORT.subn(r"\1 ottla.aiokafka", text)
    assert count

    expected = await _printed(text, TOPICS[name], bootstrap, tmp_path / "theirs.py")
    assert expected
    assert await _printed(changed, TOPICS[name], bootstrap, tmp_path / "ours.py") == expected


def test_every_program_is_run() -> None:
    """None is forgotten in the table."""
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(TOPICS)


async def _printed(text: str, topics: dict[str, int], bootstrap: str, path: Path) -> list[str]:
    """Run a program with topics of its own; return what it prints, without the names that differ."""
    prefix = f"p{uuid.uuid4().hex[:12]}"
    for topic, partitions in topics.items():
        await create_topic(bootstrap, f"{prefix}-{topic}", partitions)
    printed = await asyncio.to_thread(_run, text, path, bootstrap, prefix)
    return printed.replace(prefix, "PREFIX").splitlines()


def _run(text: str, path: Path, *arguments: str) -> str:
    path.write_text(text)
    command = (sys.executable, str(path), *arguments)
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
