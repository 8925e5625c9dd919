"""Every codec opens what it and others wrote, and no blob opens to more than the cap."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import textwrap
import traceback
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples
from tests.protocol.record_samples import peak_bytes

from ottla.protocol.compression import Codec, compress, decompress
from ottla.protocol.errors import CompressionError, EncodeError

KIB = 1024
MIB = 1024 * KIB
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]

codecs = pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.config_name)
data = st.binary(max_size=2000) | st.builds(
    lambda piece, count: piece * count, st.binary(max_size=40), st.integers(0, 9000)
)


def bomb(codec: Codec, size: int) -> bytes:
    """A small blob that opens to `size` zeros."""
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(bytes(size)))
    return compress(codec, bytes(size))


def sizeless_zstd(size: int) -> bytes:
    """A zstd frame of zeros that does not state its size, as streaming writers make it."""
    compressor = cramjam.zstd.Compressor(level=3)
    for _ in range(size // MIB):
        compressor.compress(bytes(MIB))
    return bytes(compressor.finish())


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.config_name)
@examples(25)
@given(content=data)
def test_what_is_compressed_opens_again(codec: Codec, content: bytes) -> None:
    """Through bytes, bytearray and memoryview alike, with exactly as much room as is needed."""
    blob = compress(codec, memoryview(content))

    assert blob == compress(codec, bytearray(content))
    assert decompress(codec, blob, len(content)) == content
    assert decompress(codec, memoryview(b"." + blob)[1:], 10 * MIB) == content


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.config_name)
def test_one_byte_more_than_the_cap_is_refused(codec: Codec) -> None:
    """The cap is exact, for small blobs and for large ones."""
    for size in (1, 100, 64 * KIB, 64 * KIB + 1, MIB):
        content = bytes(range(250)) * (size // 250) + bytes(size % 250)
        blob = compress(codec, content)
        assert decompress(codec, blob, size) == content
        with pytest.raises(CompressionError):
            decompress(codec, blob, size - 1)


@codecs
def test_nothing_is_opened_with_a_cap_of_zero(codec: Codec) -> None:
    """Only what is empty fits."""
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(CompressionError):
        decompress(codec, compress(codec, b"x"), 0)


@codecs
def test_a_bomb_costs_no_more_than_the_cap(codec: Codec) -> None:
    """What opens to 32 MiB is refused with little more than 1 MiB of Python's memory."""
    blob = bomb(codec, 32 * MIB)

    def explode() -> None:
        with pytest.raises(CompressionError):
            decompress(codec, blob, MIB)

    assert peak_bytes(explode) < 1.1 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak resident size from /proc")
def test_bombs_cost_the_process_no_more_than_the_cap() -> None:
    """The codecs' own allocations are not Python's: only the resident size of a whole process tells.

    A zstd frame may state its size, which invites allocating that much, or leave it out, as streaming writers do.
    """
    script = """
        import sys
        from ottla.protocol.compression import Codec, decompress
        from ottla.protocol.errors import CompressionError

        def peak_kib():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

        stdin = sys.stdin.buffer
        bombs = []
        while header := stdin.read(5):
            bombs.append((Codec(header[0]), stdin.read(int.from_bytes(header[1:], "big"))))
        before = peak_kib()
        for codec, blob in bombs:
            try:
                decompress(codec, blob, 1 << 20)
            except CompressionError:
                continue
            sys.exit("a bomb went off")
        print(peak_kib() - before)
    """
    bombs = [(codec, bomb(codec, 64 * MIB)) for codec in COMPRESSING] + [(Codec.ZSTD, sizeless_zstd(64 * MIB))]
    stdin = b"".join(bytes((codec,)) + struct.pack(">I", len(blob)) + blob for codec, blob in bombs)
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], input=stdin, capture_output=True, check=True, timeout=60
    )

    assert int(finished.stdout) * KIB < 16 * MIB


def test_a_snappy_block_cannot_claim_more_than_snappy_can_hold() -> None:
    """A stated length costs nothing until it is plausible, even below the cap."""
    liar = bytes.fromhex("ffffff3f 00 00")

    def read() -> None:
        with pytest.raises(CompressionError, match="claims"):
            decompress(Codec.SNAPPY, liar, 1 << 30)

    assert peak_bytes(read) < 100 * KIB


@codecs
def test_every_cut_is_refused(codec: Codec) -> None:
    """A blob that lacks its end is never taken for a shorter one."""
    blob = compress(codec, b"0123456789" * 20)

    for length in range(len(blob)):
        # The xerial stream has no end mark: its bare header is a stream of nothing.
        if codec is Codec.SNAPPY and length == 16:
            assert decompress(codec, blob[:length], MIB) == b""
            continue
        with pytest.raises(CompressionError):
            decompress(codec, blob[:length], MIB)


@codecs
@examples(60)
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=5))
def test_damage_raises_nothing_but_our_error(codec: Codec, changes: list[tuple[int, int]]) -> None:
    """A damaged blob opens to something within the cap, or is a CompressionError."""
    blob = bytearray(compress(codec, b"some text, some more text, " * 10))
    for position, byte in changes:
        blob[position % len(blob)] = byte
    with suppress(CompressionError):
        assert len(decompress(codec, blob, 50_000)) <= 50_000


@codecs
@examples(60)
@given(noise=st.binary(max_size=200))
def test_noise_raises_nothing_but_our_error(codec: Codec, noise: bytes) -> None:
    """So does anything else, behind the right magic or not."""
    magic = compress(codec, b"")[:4]
    for blob in (noise, magic + noise):
        with suppress(CompressionError):
            assert len(decompress(codec, blob, 50_000)) <= 50_000


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.config_name)
def test_several_frames_are_read_as_one(codec: Codec) -> None:
    """Frames, or gzip members, follow each other; what is not a frame must not follow."""
    blob = b"".join(compress(codec, content) for content in (b"one ", b"", b"two ", b"three"))

    assert decompress(codec, blob, 100) == b"one two three"
    with pytest.raises(CompressionError):
        decompress(codec, blob + b"trailing bytes", 100)


def test_gzip_of_the_standard_library_is_read() -> None:
    """With a file name in its header, which Java would not write."""
    assert decompress(Codec.GZIP, gzip.compress(b"text" * 99), 1000) == b"text" * 99
    assert gzip.decompress(compress(Codec.GZIP, b"text" * 99)) == b"text" * 99


def test_snappy_is_written_as_a_xerial_stream_of_32_kib_blocks() -> None:
    """Magic, versions 1 and 1, then each block behind its length."""
    content = bytes(100 * KIB)
    blob = compress(Codec.SNAPPY, content)

    assert blob[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    position, blocks = 16, []
    while position < len(blob):
        (length,) = struct.unpack_from(">i", blob, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(blob[position + 4 : position + 4 + length])))
        position += 4 + length
    assert [len(block) for block in blocks] == [32 * KIB, 32 * KIB, 32 * KIB, 4 * KIB]
    assert b"".join(blocks) == content


def test_snappy_is_read_raw_and_with_foreign_xerial_versions() -> None:
    """librdkafka sends no framing; some writers put the versions in little-endian."""
    raw = bytes(cramjam.snappy.compress_raw(b"text" * 99))
    foreign = bytes.fromhex("82534e4150505900 01000000 01000000") + struct.pack(">i", len(raw)) + raw

    assert decompress(Codec.SNAPPY, raw, 1000) == b"text" * 99
    assert decompress(Codec.SNAPPY, foreign, 1000) == b"text" * 99


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 5, (1 << 31) - 1])
def test_xerial_block_lengths_are_held_against_the_bytes_left(length: int) -> None:
    """A block is neither empty nor longer than the blob."""
    blob = compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", length) + b"\x00\x00\x00\x00"

    with pytest.raises(CompressionError, match="xerial block"):
        decompress(Codec.SNAPPY, blob, MIB)


def test_lz4_frames_are_ones_that_java_reads() -> None:
    """Java refuses linked blocks, and skips a content size: version 01, independent, neither size nor dictionary.

    The block size code 4 is 64 KB; more than one block shows that they do not refer to each other.
    """
    content = b"0123456789abcdef" * (200 * KIB // 16)
    for level in (None, 1, 9, 17):
        blob = compress(Codec.LZ4, content, level)
        flags, block_size = blob[4], blob[5]
        assert blob[:4] == bytes.fromhex("04224d18")
        assert flags >> 6 == 1
        assert flags & 0x20
        assert not flags & 0x0B
        assert block_size == 4 << 4
        assert decompress(Codec.LZ4, blob, len(content)) == content


def test_lz4_of_other_writers_is_read() -> None:
    """Linked blocks and content checksums are no obstacle for us."""
    content = b"0123456789abcdef" * 10_000

    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(content)), len(content)) == content


def test_levels_are_those_that_kafka_allows() -> None:
    """The ranges of Kafka's level settings; codecs without levels take none."""
    for codec, levels in {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}.items():
        low, high = levels
        for level in levels:
            assert decompress(codec, compress(codec, b"text", level), 10) == b"text"
        for level in (low - 1, high + 1):
            with pytest.raises(EncodeError, match="level"):
                compress(codec, b"text", level)
    assert compress(Codec.GZIP, b"text", -1) == compress(Codec.GZIP, b"text")
    for codec in (Codec.NONE, Codec.SNAPPY):
        with pytest.raises(EncodeError, match="level"):
            compress(codec, b"text", 1)


def test_codecs_have_the_names_of_the_configuration() -> None:
    """As in `compression.type`, where a topic may also say `uncompressed`."""
    assert [codec.config_name for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.from_config_name(codec.config_name) for codec in Codec] == list(Codec)
    assert Codec.from_config_name("uncompressed") is Codec.NONE
    for name in ("producer", "GZIP", ""):
        with pytest.raises(ValueError, match="unknown compression type"):
            Codec.from_config_name(name)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_does_not_open_leaves_no_buffer_lent(codec: Codec) -> None:
    """The garbage collector of Python 3.13 complains of one, whenever it comes to it."""
    whole = compress(codec, bytes(range(256)) * 3)
    with pytest.raises(CompressionError) as caught:
        decompress(codec, whole[:-20] + b"\xff" * 20, 10_000)

    frames = [frame.f_locals["output"] for frame, _ in traceback.walk_tb(caught.tb) if "output" in frame.f_locals]
    for output in frames:
        with pytest.raises(ValueError, match="released"):
            assert output.view.nbytes
    assert frames
