"""The compression codecs, with cramjam: what `compression.py` imports for the first batch that needs one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, Self

import cramjam

from ottla.protocol.compression import Codec
from ottla.protocol.errors import CompressionError

if TYPE_CHECKING:
    from ottla.protocol.compression import ReadableBuffer

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


def _compress_gzip(data: ReadableBuffer, level: int | None) -> bytes:
    return bytes(cramjam.gzip.compress(data, _GZIP_LEVEL_DEFAULT if level in (None, -1) else level))


def _compress_zstd(data: ReadableBuffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL_DEFAULT if level is None else level))


def _compress_lz4(data: ReadableBuffer, level: int | None) -> bytes:
    level = _LZ4_LEVEL_DEFAULT if level is None else level
    # Java refuses frames with linked blocks, which are cramjam's default. Java's writer also treats level 9, the
    # default, as the fast compressor, which is level 1 of the reference library.
    fast = level == _LZ4_LEVEL_DEFAULT
    compressor = cramjam.lz4.Compressor(level=1 if fast else level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_snappy(data: ReadableBuffer, _level: int | None) -> bytes:
    view = memoryview(data)
    chunks = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        chunks.append(_XERIAL_BLOCK_LENGTH.pack(len(block)))
        chunks.append(block)
    return b"".join(chunks)


def _decompress_frames(codec: Codec, decompress_into: _DecompressInto, data: ReadableBuffer, max_size: int) -> bytes:
    """Decompress into buffers of growing size, up to the limit.

    cramjam does not say whether the data is broken or the buffer too small, so only a failure with a buffer of
    `max_size` is final. A buffer consists of zero pages until it is written, so broken data costs only what it really
    expands to.
    """
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


def _decompress_snappy(given: ReadableBuffer, max_size: int) -> bytes:
    data = memoryview(given)
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


# A level of None means Kafka's default level.
COMPRESS: Final[dict[Codec, Callable[[ReadableBuffer, int | None], bytes]]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
# The number is the limit of the decompressed size.
DECOMPRESS: Final[dict[Codec, Callable[[ReadableBuffer, int], bytes]]] = {
    Codec.GZIP: partial(_decompress_frames, Codec.GZIP, cramjam.gzip.decompress_into),
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: partial(_decompress_frames, Codec.LZ4, cramjam.lz4.decompress_into),
    Codec.ZSTD: partial(_decompress_frames, Codec.ZSTD, cramjam.zstd.decompress_into),
}
