"""The compression codecs of record batches, with a hard limit for the decompressed size.

A few hundred compressed bytes can expand to gigabytes, and the size in a frame is only what the sender claims. So the
output goes into a buffer that never grows beyond the limit, and data that does not fit is refused.

The codecs are in `compressors.py`, which is imported for the first batch that needs one: their library takes 2 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.protocol.errors import CompressionError, EncodeError

if TYPE_CHECKING:
    from mmap import mmap

    ReadableBuffer: TypeAlias = bytes | bytearray | memoryview | mmap


class Codec(IntEnum):
    """The compression codec, as bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The name of this codec in the producer's `compression.type`."""
        return self.name.lower()

    @classmethod
    def from_config_name(cls, name: str) -> Codec:
        """Read a producer's `compression.type`, or a topic's, where `uncompressed` means `none`."""
        codec = _CODECS_BY_CONFIG_NAME.get(name)
        if codec is None:
            raise ValueError(f"unknown compression type {name!r}")
        return codec


_CODECS_BY_CONFIG_NAME: Final = {codec.config_name: codec for codec in Codec} | {"uncompressed": Codec.NONE}

# The levels that Kafka's `compression.<codec>.level` accepts, and its defaults.
LEVELS: Final = {
    Codec.GZIP: (-1, *range(1, 10)),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}


def compress(codec: Codec, data: ReadableBuffer, level: int | None = None) -> bytes:
    """Compress `data` in the form that every Kafka client reads. `level` None means Kafka's default level."""
    if level is not None and level not in LEVELS.get(codec, ()):
        raise EncodeError(f"{codec.config_name} has no compression level {level}")
    if codec is Codec.NONE:
        return bytes(data)
    return _compressors()[codec](data, level)


def decompress(codec: Codec, data: ReadableBuffer, max_size: int) -> bytes:
    """Decompress `data`, which may hold several frames; raise CompressionError if it exceeds `max_size` bytes."""
    if codec is Codec.NONE:
        if len(data) > max_size:
            raise CompressionError(f"{len(data)} bytes of records, {max_size} allowed")
        return bytes(data)
    return _decompressors()[codec](data, max_size)


@cache
def _compressors() -> dict[Codec, Callable[[ReadableBuffer, int | None], bytes]]:
    from ottla.protocol.compressors import COMPRESS

    return COMPRESS


@cache
def _decompressors() -> dict[Codec, Callable[[ReadableBuffer, int], bytes]]:
    from ottla.protocol.compressors import DECOMPRESS

    return DECOMPRESS
