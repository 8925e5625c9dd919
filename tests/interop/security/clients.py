"""All clients with the options that they have for TLS and SASL, in one form.

`exchange` writes a record and reads it again. `refusal` is for a broker or an access that is not good: it returns what
the client told its user, class and words, with what it wrote to its log.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Protocol

import aiokafka.abc
import aiokafka.errors
import aiokafka.helpers
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider
from tests.interop.clients.kcat import kcat_path
from tests.interop.clients.python import KafkaConsumer, KafkaProducer, errors
from tests.interop.clients.python import TopicPartition as PythonTopicPartition
from tests.interop.security.secure_broker import MECHANISMS, TOKEN_SECONDS, Access
from tests.kit.waiting import until

import ottla.aiokafka.abc
import ottla.aiokafka.errors
import ottla.aiokafka.helpers
from ottla.client.consumer.consumer import Consumer as OwnConsumer
from ottla.client.errors import KafkaError as OwnError
from ottla.client.producer.producer import Producer as OwnProducer
from ottla.client.types import TopicPartition as OwnTopicPartition

# Bounds a hang.
DEADLINE_S: Final = 60.0
# kafka-python tries again until its time is over; what it found is in its log.
REFUSED_WITHIN_MS: Final = 1500


class SecureClient(Protocol):
    """A client library or tool."""

    name: str
    # Of SASL, that it can use with the broker.
    mechanisms: tuple[str, ...]

    def exchange(self, access: Access, topic: str, value: bytes) -> None:
        """Write a record to partition 0 and read until it is there."""
        ...

    def refusal(self, access: Access) -> str:
        """Try to get in, in vain; return what the user is told."""
        ...


class ConfluentClient:
    """confluent-kafka: librdkafka from Python."""

    name = "confluent-kafka"
    mechanisms: tuple[str, ...] = MECHANISMS

    def exchange(self, access: Access, topic: str, value: bytes) -> None:
        """Use Producer and Consumer."""
        failed: list[KafkaError] = []
        producer = Producer(self.options(access))
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        assert producer.flush(DEADLINE_S) == 0
        assert failed == []
        consumer = Consumer({**self.options(access), "group.id": "not-used", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

        def found() -> object:
            message = consumer.poll(0.5)
            return message.value() if message is not None and not message.error() else None

        try:
            until(lambda: found() == value, "the record is read", pause_s=0)
        finally:
            consumer.close()

    def refusal(self, access: Access) -> str:
        """Listen to a Producer: some errors come to its callback, others stand in its log alone."""
        told: list[KafkaError] = []
        logger = logging.Logger("librdkafka", logging.INFO)
        with log_of(logger) as said:
            producer = Producer({**self.options(access), "log_level": 6, "error_cb": told.append}, logger=logger)
            until(
                lambda: any("FAIL" in line for line in said),
                "it says that it cannot get in",
                meanwhile=lambda: producer.poll(0.1),
            )
        return "\n".join([*(f"{error.name()}: {error.str()}" for error in told), *said])

    def options(self, access: Access) -> dict[str, Any]:
        """The options of all its parts, by its own names."""
        expires = time.time() + TOKEN_SECONDS
        tokens = {"oauth_cb": lambda _: (access.token, expires)} if access.mechanism == "OAUTHBEARER" else {}
        return {**librdkafka_options(access), "log_level": 0, **tokens}


class KcatClient:
    """The command `kcat`; its only tokens are those that nobody has signed."""

    name = "kcat"
    mechanisms: tuple[str, ...] = MECHANISMS[:3]

    def exchange(self, access: Access, topic: str, value: bytes) -> None:
        """Use two processes."""
        for arguments, wanted in ((("-P",), b""), (("-C", "-e", "-q", "-o", "beginning"), value)):
            done = self._run(access, *arguments, "-t", topic, "-p", "0", standard_input=value)
            assert done.returncode == 0, done.stderr.decode()
            assert wanted in done.stdout

    def refusal(self, access: Access) -> str:
        """Ask for metadata, until it says why there is none."""
        with self._config_file(access) as path:
            command = [kcat_path(), "-F", path, "-L", "-m", str(int(DEADLINE_S))]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            with process:
                assert process.stderr is not None
                line = next((line.decode() for line in process.stderr if b"|FAIL|" in line), "")
                process.kill()
        return line

    def _run(self, access: Access, *arguments: str, standard_input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        with self._config_file(access) as path:
            return subprocess.run(
                [kcat_path(), "-F", path, *arguments],
                check=False,
                input=standard_input,
                capture_output=True,
                timeout=DEADLINE_S,
            )

    @contextmanager
    def _config_file(self, access: Access) -> Iterator[str]:
        options = librdkafka_options(access)
        if access.mechanism == "OAUTHBEARER":
            options |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"}
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write("".join(f"{name}={value}\n" for name, value in options.items()))
            file.flush()
            yield file.name


class AioKafkaClient:
    """aiokafka."""

    name = "aiokafka"
    mechanisms: tuple[str, ...] = MECHANISMS
    library: ClassVar[Any] = aiokafka

    def exchange(self, access: Access, topic: str, value: bytes) -> None:
        """Use its producer and consumer."""
        asyncio.run(asyncio.wait_for(self._exchange(access, topic, value), DEADLINE_S))

    def refusal(self, access: Access) -> str:
        """Start a producer."""
        with log_of(logging.getLogger("aiokafka")) as said:
            return "\n".join([asyncio.run(asyncio.wait_for(self._refusal(access), DEADLINE_S)), *said])

    async def _exchange(self, access: Access, topic: str, value: bytes) -> None:
        partition = self.library.TopicPartition(topic, 0)
        async with self.library.AIOKafkaProducer(**self.options(access)) as producer:
            await producer.send_and_wait(topic, value, partition=0)
        async with self.library.AIOKafkaConsumer(**self.options(access)) as consumer:
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            while (await consumer.getone()).value != value:
                pass

    async def _refusal(self, access: Access) -> str:
        producer = self.library.AIOKafkaProducer(**self.options(access))
        try:
            await producer.start()
        except self.library.errors.KafkaError as error:
            return repr(error)
        finally:
            await producer.stop()
        raise AssertionError("it got in")

    def options(self, access: Access) -> dict[str, Any]:
        """The options of all its parts, by its own names."""

        class Provider(self.library.abc.AbstractTokenProvider):  # type: ignore[name-defined, misc]
            async def token(self) -> str:
                return access.token

        options = sasl_options(access)
        if access.protocol.endswith("SSL"):
            options["ssl_context"] = self.library.helpers.create_ssl_context(
                cafile=str(access.ca), certfile=access.certificate
            )
        if access.mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = Provider()
        return options


class ShimClient(AioKafkaClient):
    """Our client under aiokafka's names."""

    name = "ottla.aiokafka"
    library: ClassVar[Any] = ottla.aiokafka


class KafkaPythonClient:
    """kafka-python."""

    name = "kafka-python"
    mechanisms: tuple[str, ...] = MECHANISMS

    def exchange(self, access: Access, topic: str, value: bytes) -> None:
        """Use its producer and consumer."""
        producer = KafkaProducer(**self.options(access))
        try:
            producer.send(topic, value, partition=0).get(timeout=DEADLINE_S)
        finally:
            producer.close(timeout=DEADLINE_S)
        partition = PythonTopicPartition(topic, 0)
        consumer = KafkaConsumer(**self.options(access))
        try:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            until(
                lambda: value in [record.value for records in consumer.poll(500).values() for record in records],
                "the record is read",
                pause_s=0,
            )
        finally:
            consumer.close()

    def refusal(self, access: Access) -> str:
        """Make a producer."""
        with log_of(logging.getLogger("kafka")) as said, warnings.catch_warnings():
            # What it could not connect with is left to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                return "\n".join([self._refusal(access), *said])
            finally:
                gc.collect()

    def options(self, access: Access) -> dict[str, Any]:
        """The options of all its parts, by its own names."""

        class Provider(PythonTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return access.token

        options = sasl_options(access)
        if access.protocol.endswith("SSL"):
            options |= tls_files(access)
        if access.mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = Provider()
        return options

    def _refusal(self, access: Access) -> str:
        made: list[Any] = []

        def kafka_client(**options: Any) -> Any:
            made.append(KafkaProducer.DEFAULT_CONFIG["kafka_client"](**options))
            return made[-1]

        try:
            KafkaProducer(
                **self.options(access), bootstrap_timeout_ms=REFUSED_WITHIN_MS, kafka_client=kafka_client
            ).close(timeout=0)
        except errors.KafkaError as error:
            return repr(error)
        finally:
            # A producer that is not made does not close what it has begun with.
            made[0].close()
        raise AssertionError("it got in")


class OwnClient:
    """Our own."""

    name = "ottla"
    mechanisms: tuple[str, ...] = MECHANISMS

    def exchange(self, access: Access, topic: str, value: bytes) -> None:
        """Use Producer and Consumer."""
        asyncio.run(asyncio.wait_for(self._exchange(access, topic, value), DEADLINE_S))

    def refusal(self, access: Access) -> str:
        """Start a producer."""
        return asyncio.run(asyncio.wait_for(self._refusal(access), DEADLINE_S))

    async def _exchange(self, access: Access, topic: str, value: bytes) -> None:
        partition = OwnTopicPartition(topic, 0)
        async with OwnProducer(**self.options(access)) as producer:
            await producer.send_and_wait(topic, value, partition=0)
        async with OwnConsumer(**self.options(access)) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            while (await consumer.getone()).value != value:
                pass

    async def _refusal(self, access: Access) -> str:
        try:
            async with OwnProducer(**self.options(access)):
                raise AssertionError("it got in")
        except OwnError as error:
            return repr(error)

    def options(self, access: Access) -> dict[str, Any]:
        """The options of all its parts, by its own names."""

        async def token() -> str:
            return access.token

        options = sasl_options(access)
        if access.protocol.endswith("SSL"):
            options |= tls_files(access)
        if access.mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = token
        return options


def librdkafka_options(access: Access) -> dict[str, Any]:
    """The options of librdkafka by its names, but for tokens."""
    options = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.protocol.endswith("SSL"):
        options["ssl.ca.location"] = str(access.ca)
    if access.certificate is not None:
        options |= {"ssl.certificate.location": str(access.certificate), "ssl.key.location": str(access.certificate)}
    if access.mechanism is not None:
        options["sasl.mechanism"] = access.mechanism
        if access.mechanism != "OAUTHBEARER":
            options |= {"sasl.username": access.user, "sasl.password": access.password}
    return options


def sasl_options(access: Access) -> dict[str, Any]:
    """What is the same in aiokafka, kafka-python and our client."""
    options = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.mechanism is not None:
        options["sasl_mechanism"] = access.mechanism
        if access.mechanism != "OAUTHBEARER":
            options |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    return options


def tls_files(access: Access) -> dict[str, Any]:
    """The files of TLS for kafka-python and our client."""
    files = {"ssl_cafile": access.ca, "ssl_certfile": access.certificate, "ssl_keyfile": access.certificate}
    return {name: str(path) for name, path in files.items() if path is not None}


@contextmanager
def log_of(logger: logging.Logger) -> Iterator[list[str]]:
    """Give the list of what a library writes to its log."""
    said: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler = Listening()
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


SECURE_CLIENTS: Final[tuple[SecureClient, ...]] = (
    ConfluentClient(),
    AioKafkaClient(),
    KafkaPythonClient(),
    KcatClient(),
    OwnClient(),
)
