"""Options as editors and type checkers see them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from ottla.client.consumer.settings import ConsumerOptions, ConsumerSettings
from ottla.client.net.settings import ClientOptions, ClientSettings
from ottla.client.producer.settings import ProducerOptions, ProducerSettings

ROOT = Path(__file__).parents[2]
WRONG = "# wrong"
SAMPLE = f"""
from ottla import Admin, Consumer, Producer, sync
from ottla.errors import KafkaTimeoutError, UnknownTopicOrPartitionError


def encoded(value: str) -> bytes:
    return value.encode()


Producer(bootstrap_servers="localhost:9092", acks="all", linger_ms=5, compression_type="zstd", value_serializer=encoded)
Consumer("orders", bootstrap_servers=["a:9092", "b"], group_id="billing", auto_offset_reset="earliest")
Consumer(partition_assignment_strategy="range,sticky")
Admin(client_id="tool", security_protocol="SASL_SSL", sasl_plain_username="alice", sasl_plain_password="secret")
Producer.from_config({{"acks": "all"}}, linger_ms=5)
Producer(transactional_id="orders-1", transaction_timeout_ms=10_000)
sync.Producer(acks=1, call_timeout_ms=1000)
sync.Consumer("orders", group_id="billing", consumer_timeout_ms=1000)
sync.Consumer.from_config("client.properties", "orders", call_timeout_ms=1000)
sync.Admin(request_timeout_ms=1000)
error: bool = KafkaTimeoutError("").retriable or UnknownTopicOrPartitionError("").fatal

Producer(linger=5)  {WRONG}: the name
Producer(linger_ms="5")  {WRONG}: the type
Producer(acks="some")  {WRONG}: the choice
Producer(transactional_id=1)  {WRONG}: the type
Producer(group_id="billing")  {WRONG}: an option of consumers
Producer.from_config({{}}, linger=5)  {WRONG}: the name
Consumer("orders", auto_offset_reset="soonest")  {WRONG}: the choice
Consumer("orders", consumer_timeout_ms=1000)  {WRONG}: an option of the synchronous one
Admin(acks=1)  {WRONG}: an option of producers
sync.Producer(linger=5)  {WRONG}: the name
sync.Consumer.from_config({{}}, "orders", group=1)  {WRONG}: the name
sync.Admin(call_timeout_ms="1000")  {WRONG}: the type
"""

TABLES = [(ClientOptions, ClientSettings), (ProducerOptions, ProducerSettings), (ConsumerOptions, ConsumerSettings)]


@pytest.mark.parametrize(("options", "settings"), TABLES)
def test_keyword_arguments_are_the_options(options: Any, settings: type[ClientSettings]) -> None:
    """Under the same names, in the same order, with the same types, and none of them required."""
    typed = [(name, hint.__forward_arg__) for name, hint in options.__annotations__.items()]

    assert [(field.name, field.type) for field in dataclasses.fields(settings)] == typed
    assert options.__required_keys__ == frozenset()


@pytest.mark.parametrize("settings", [settings for _, settings in TABLES])
def test_every_option_is_documented(settings: type[ClientSettings]) -> None:
    """Right below it, in the one place that also has its default."""
    (declared,) = ast.parse(dedent(inspect.getsource(settings))).body
    assert isinstance(declared, ast.ClassDef)
    own = {field.name for field in dataclasses.fields(settings)} & settings.__annotations__.keys()
    documented = {
        before.target.id
        for before, after in zip(declared.body, declared.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name)
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
    }

    assert own - documented == set()


def test_a_type_checker_finds_wrong_options(tmp_path: Path) -> None:
    """Wrong names, types and choices are errors, of all clients; right ones are not."""
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE)
    command = (sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(sample))
    checked = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=280)

    found = {line.split(":")[1] for line in checked.stdout.splitlines() if ": error:" in line}
    wrong = {str(number) for number, line in enumerate(SAMPLE.splitlines(), 1) if WRONG in line}
    assert found == wrong, checked.stdout + checked.stderr
