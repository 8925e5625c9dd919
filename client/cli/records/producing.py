"""Read and write the records of `topic produce`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from ottla.client.cli.records.input_format import InputRecord, Parse
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.output import say
from ottla.client.cli.terminal.progress import Tell
from ottla.client.cli.terminal.target import Target
from ottla.client.errors import UnknownTopicOrPartitionError
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Delivery
from ottla.client.producer.settings import ProducerSettings

_CHUNK_BYTES: Final = 1 << 16
_LINE_BYTES_MAX: Final = 100 * 1024 * 1024
_UNACKNOWLEDGED_MAX: Final = 10_000
_LINGER_MS: Final = 5
_TOLD_EVERY: Final = 1000


@dataclass(frozen=True)
class Records:
    """Values given as arguments, a file, or lines of an input, and how they are read."""

    values: Sequence[str] | None
    file: Path | None
    parse: Parse
    input: BinaryIO

    async def all(self) -> AsyncIterator[InputRecord]:
        """Yield the records."""
        number = 0
        async for line in self._lines():
            number += 1
            try:
                yield self.parse(line)
            except CommandError as error:
                raise CommandError(f"Record {number}: {error}", error.exit_code) from error

    async def _lines(self) -> AsyncIterator[bytes]:
        if self.file is not None:
            try:
                yield await asyncio.to_thread(self.file.read_bytes)
            except OSError as error:
                raise CommandError(f"cannot read {self.file}: {error.strerror}") from error
            return
        for value in self.values or ():
            yield value.encode()
        if self.values:
            return
        rest = b""
        # Reading blocks, and must not delay requests in flight.
        while chunk := await _read_aside(self._chunk):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
            if len(rest) > _LINE_BYTES_MAX:
                raise CommandError(f"a line has more than {_LINE_BYTES_MAX} bytes; use --file for large values")
        if rest:
            yield rest

    def _chunk(self) -> bytes:
        try:
            descriptor = self.input.fileno()
        except OSError:
            return self.input.read(_CHUNK_BYTES)
        # Not by the file object: the process could not end while a thread is reading with it.
        return os.read(descriptor, _CHUNK_BYTES)


async def _read_aside(read: Callable[[], bytes]) -> bytes:
    """Read in a thread for which nobody waits: neither Ctrl-C nor the end of the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def settle(settling: Callable[[Any], None], result: object) -> None:
        if not answer.done():
            settling(result)

    def run() -> None:
        try:
            settled = partial(settle, answer.set_result, read())
        except OSError as error:
            settled = partial(settle, answer.set_exception, CommandError(f"cannot read the input: {error.strerror}"))
        # Without a loop, the command has ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settled)

    threading.Thread(target=run, name="input", daemon=True).start()
    return await answer


async def produce_records(
    target: Target,
    topic: str,
    records: Records,
    partition: int | None,
    headers: list[tuple[str, bytes]],
    options: dict[str, Any],
    bar: AbstractContextManager[Tell],
) -> None:
    """Write all records and report their offsets; stops at the first error.

    With a transactional_id they are one transaction, which an error aborts.
    """
    settings = target.settings(ProducerSettings)
    timeout_ms = settings["default_api_timeout_ms"]
    defaults = {"linger_ms": _LINGER_MS, "max_block_ms": timeout_ms, "delivery_timeout_ms": timeout_ms}
    options = defaults | settings | options
    is_transaction = options.get("transactional_id") is not None
    outcome = ""
    started = time.monotonic()
    written = 0
    unacknowledged: deque[Delivery] = deque()

    async def acknowledge(left: int, tell: Tell) -> None:
        nonlocal written
        while len(unacknowledged) > left:
            metadata = await unacknowledged.popleft()
            written += 1
            if written % _TOLD_EVERY == 0:
                tell(written)
            if target.is_data:
                place = {"topic": metadata.topic, "partition": metadata.partition, "offset": metadata.offset}
                target.print_items([{**place, "timestamp": metadata.timestamp}])

    try:
        with bar as tell:
            async with (
                Producer(**options) as producer,
                producer.transaction() if is_transaction else contextlib.nullcontext(),
            ):
                outcome = ", aborted" if is_transaction else ""
                async for record in records.all():
                    chosen = record.partition if partition is None else partition
                    more_headers = [*headers, *record.headers]
                    try:
                        delivery = await producer.send(
                            topic, record.value, record.key, chosen, record.timestamp_ms, more_headers
                        )
                    except UnknownTopicOrPartitionError as error:
                        if chosen is None:
                            raise
                        # Its general advice is about the name of the topic.
                        raise CommandError(
                            f"{error.detail}. Add partitions to the topic (`ottla topic add-partitions`), or let "
                            "--repartition choose by key what --json reads."
                        ) from error
                    unacknowledged.append(delivery)
                    await acknowledge(_UNACKNOWLEDGED_MAX, tell)
                await producer.flush()
                await acknowledge(0, tell)
                # If the commit fails, its error says what is known.
                outcome = ""
            outcome = ", committed" if is_transaction else ""
    finally:
        took = time.monotonic() - started
        written += sum(each.done() and each.exception() is None for each in unacknowledged)
        say(f"{written} {'record' if written == 1 else 'records'} written to {topic} in {took:.2f} s{outcome}")
