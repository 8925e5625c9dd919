"""The compression codecs of record batches, with a hard limit for the decompressed size.

A few hundred compressed bytes can expand to gigabytes, and the size in a frame is only what the sender claims. So the
output goes into a buffer that never grows beyond the limit, and data that does not fit is refused.
"""

from __future__ import annotations

from enum import IntEnum
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

import cramjam

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
# -1 in Kafka's options: the default of zlib.
_GZIP_LEVEL_DEFAULT: Final = 6
_LZ4_LEVEL_DEFAULT: Final = 9
_ZSTD_LEVEL_DEFAULT: Final = 3

# A xerial stream has this magic, int32 version, int32 oldest compatible version, then blocks of int32 length and raw
# snappy. Some writers store the two versions in little-endian, so readers skip them.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_BLOCK_LENGTH: Final = Struct(">i")

# A snappy element takes at least two bytes and yields at most 64: a block that claims more is invalid.
_SNAPPY_RATIO_MAX: Final = 32

_OUTPUT_BYTES_FIRST: Final = 64 * 1024
_OUTPUT_RATIO_FIRST: Final = 4
_OUTPUT_GROWTH: Final = 8


class _DecompressInto(Protocol):
    def __call__(self, input: ReadableBuffer, output: memoryview) -> int: ...  # noqa: A002


_DECOMPRESS_INTO: Final[dict[Codec, _DecompressInto]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: Codec, data: ReadableBuffer, level: int | None = None) -> bytes:
    """Compress `data` in the form that every Kafka client reads. `level` None means Kafka's default level."""
    if level is not None and level not in LEVELS.get(codec, ()):
        raise EncodeError(f"{codec.config_name} has no compression level {level}")
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, _GZIP_LEVEL_DEFAULT if level in (None, -1) else level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, _LZ4_LEVEL_DEFAULT if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL_DEFAULT if level is None else level))


def decompress(codec: Codec, data: ReadableBuffer, max_size: int) -> bytes:
    """Decompress `data`, which may hold several frames; raise CompressionError if it exceeds `max_size` bytes."""
    if codec is Codec.NONE:
        if len(data) > max_size:
            raise CompressionError(f"{len(data)} bytes of records, {max_size} allowed")
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), max_size)
    return _decompress_frames(codec, data, max_size)


def _compress_lz4(data: ReadableBuffer, level: int) -> bytes:
    # Java refuses frames with linked blocks, which are cramjam's default. Java's writer also treats level 9, the
    # default, as the fast compressor, which is level 1 of the reference library.
    fast = level == _LZ4_LEVEL_DEFAULT
    compressor = cramjam.lz4.Compressor(level=1 if fast else level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_snappy(data: ReadableBuffer) -> bytes:
    view = memoryview(data)
    chunks = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        chunks.append(_XERIAL_BLOCK_LENGTH.pack(len(block)))
        chunks.append(block)
    return b"".join(chunks)


def _decompress_frames(codec: Codec, data: ReadableBuffer, max_size: int) -> bytes:
    """Decompress into buffers of growing size, up to the limit.

    cramjam does not say whether the data is broken or the buffer too small, so only a failure with a buffer of
    `max_size` is final. A buffer consists of zero pages until it is written, so broken data costs only what it really
    expands to.
    """
    decompress_into = _DECOMPRESS_INTO[codec]
    size = min(max(_OUTPUT_BYTES_FIRST, _OUTPUT_RATIO_FIRST * len(data)), max_size)
    while True:
        try:
            with _Output(size) as output:
                return output.filled(decompress_into(data, output.view))
        except cramjam.DecompressionError as error:
            if size == max_size:
                raise CompressionError(f"{codec.config_name} does not open within {max_size} bytes: {error}") from error
        # Two buffers at once could exceed the limit.
        del output
        size = min(_OUTPUT_GROWTH * size, max_size)


def _decompress_snappy(data: memoryview, max_size: int) -> bytes:
    try:
        blocks = _xerial_blocks(data) if bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC else [data]
        sizes = [_snappy_size(block) for block in blocks]
        total = sum(sizes)
        if total > max_size:
            raise CompressionError(f"snappy opens to {total} bytes, {max_size} allowed")
        with _Output(total) as output:
            position = 0
            for block, size in zip(blocks, sizes, strict=True):
                cramjam.snappy.decompress_raw_into(block, output.view[position : position + size])
                position += size
            return output.filled(total)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy does not open: {error}") from error


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    position = len(_XERIAL_HEADER)
    end = len(data)
    if position > end:
        raise CompressionError("xerial header cut short")
    while position < end:
        if end - position < _XERIAL_BLOCK_LENGTH.size:
            raise CompressionError("xerial block length cut short")
        (length,) = _XERIAL_BLOCK_LENGTH.unpack_from(data, position)
        position += _XERIAL_BLOCK_LENGTH.size
        if not 0 < length <= end - position:
            raise CompressionError(f"xerial block of {length} bytes, {end - position} left")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy_size(block: memoryview) -> int:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CompressionError(f"snappy block of {len(block)} bytes claims to hold {size}")
    return size


class _Output:
    """A buffer of fixed size that a codec writes to through a view, and that becomes `bytes` without a copy.

    Only BytesIO offers both: it owns a bytes object without other references, lets it be written in place, and returns
    that same object, cut to length. The view is released when the block ends, even with an exception, because the
    garbage collector of Python 3.13 complains about a buffer with an open view.
    """

    __slots__ = ("_buffer", "view")

    def __init__(self, size: int) -> None:
        self._buffer = BytesIO(bytes(size))
        self.view = self._buffer.getbuffer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.view.release()

    def filled(self, length: int) -> bytes:
        """Stop writing, and return the first `length` bytes."""
        self.view.release()
        self._buffer.truncate(length)
        return self._buffer.getvalue()
