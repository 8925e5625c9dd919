"""Options that begin with `kafka.`, which are those of the Java clients, as settings of ours."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.errors import KafkaConfigurationError
from ottla.client.net.settings import ClientSettings
from ottla.client.producer.settings import ProducerSettings
from ottla.pipeline.sources.errors import SourceOptionError
from ottla.pipeline.sources.options import KAFKA_PREFIX

SettingsT = TypeVar("SettingsT", bound=ClientSettings)

# What would break the source's own bookkeeping, and what to use in its place.
_REFUSED: Final = {
    "auto.offset.reset": "the option startingOffsets says where to begin",
    "enable.auto.commit": "offsets are kept in the checkpoint of the query",
    "interceptor.classes": "there are no Java classes here",
    "key.deserializer": "keys are binary; convert them with functions of Spark",
    "value.deserializer": "values are binary; convert them with functions of Spark",
    "key.serializer": "keys are strings or binary; convert them with functions of Spark",
    "value.serializer": "values are strings or binary; convert them with functions of Spark",
    "transactional.id": "the option exactlyOnce writes transactions, with an id for each shard",
}
# Options of the Java clients that change nothing here: how much they buffer, and what they report to whom.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "enable.metrics.push",
        "exclude.internal.topics",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "ssl.protocol",
        "ssl.enabled.protocols",
    }
)
_JAAS: Final = "sasl.jaas.config"
_JAAS_ENTRY: Final = re.compile(r'(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|\'[^\']*\'|[^\s;]+)')
_HOSTNAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")
# Fewer and larger fetches than a consumer makes that is to be quick with each record, and still small enough that a
# connection keeps their buffers (`client/receiving.py`).
_FETCH_BYTES: Final = 3584 * 1024
_READER_DEFAULTS: Final[Mapping[str, Any]] = {"max_partition_fetch_bytes": _FETCH_BYTES, "client_id": "ottla-spark"}
# A transaction is open until the last task of its batch has ended. More than this, brokers refuse by default.
_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000


def kafka_config(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the client, without their prefix."""
    config = {
        name.lower().removeprefix(KAFKA_PREFIX): value
        for name, value in options.items()
        if name.lower().startswith(KAFKA_PREFIX)
    }
    if not config.get("bootstrap.servers", "").strip():
        raise SourceOptionError(
            "kafka.bootstrap.servers is missing: write where the brokers are, such as host1:9092,host2:9092."
        )
    for name, reason in _REFUSED.items():
        if name in config:
            raise SourceOptionError(f"Remove kafka.{name}: {reason}.")
    return config


def reader_settings(config: Mapping[str, str]) -> ConsumerSettings:
    """Return the settings for reading; SourceOptionError where an option is unknown or wrong."""
    return _settings(ConsumerSettings, ProducerSettings, config, _READER_DEFAULTS)


def writer_settings(config: Mapping[str, str], transactional_id: str | None = None) -> ProducerSettings:
    """Return the settings for writing."""
    defaults = {
        "client_id": "ottla-spark",
        "linger_ms": 5,
        "transactional_id": transactional_id,
        "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS,
    }
    return _settings(ProducerSettings, ConsumerSettings, config, defaults)


def _settings(
    wanted: type[SettingsT], other: type[ClientSettings], config: Mapping[str, str], defaults: Mapping[str, Any]
) -> SettingsT:
    known, known_elsewhere = _names(wanted), _names(other)
    kept: dict[str, Any] = {}
    for name, value in _without_java(config, known).items():
        if name in known:
            kept[name] = value
        elif name not in known_elsewhere and name not in _WITHOUT_EFFECT:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean kafka.{close[0]}?" if close else "remove it."
            raise SourceOptionError(f"kafka.{name} is not an option of our clients; {hint}")
    try:
        return wanted.from_kwargs({**defaults, **wanted.kwargs_from_config(kept)})
    except KafkaConfigurationError as error:
        raise SourceOptionError(f"Options that begin with kafka.: {error.detail}.") from error


def _names(settings: type[ClientSettings]) -> set[str]:
    dotted = {field.name.replace("_", ".") for field in dataclasses.fields(settings)}
    return dotted | set(settings.DOTTED_NAMES)


def _without_java(config: Mapping[str, str], known: set[str]) -> dict[str, str]:
    """Put what only Java has into our words."""
    left = dict(config)
    if _JAAS in left and _JAAS not in known:
        entries = dict(_JAAS_ENTRY.findall(left.pop(_JAAS)))
        if "username" not in entries or "password" not in entries:
            raise SourceOptionError(
                f'kafka.{_JAAS} has no username="..." and password="..."; '
                "kafka.sasl.username and kafka.sasl.password do the same."
            )
        left.setdefault("sasl.username", _unquoted(entries["username"]))
        left.setdefault("sasl.password", _unquoted(entries["password"]))
    if _HOSTNAME_CHECK in left and _HOSTNAME_CHECK not in known:
        left.setdefault("ssl.check.hostname", str(left.pop(_HOSTNAME_CHECK).strip() != "").lower())
    for name in _STORE_TYPES:
        if name in left and name not in known and left.pop(name).strip().upper() != "PEM":
            raise SourceOptionError(f"kafka.{name} must be PEM: convert the store to a file of that form.")
    return left


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] in ('"', "'") else text
