import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import ProtocolError
from magnetar.wire.compression import NAMES, compress, decompress

kinds = st.sampled_from(sorted(NAMES.values()))


@given(kinds, st.binary(max_size=2000), st.integers(1, 5))
def test_what_is_compressed_comes_back(kind: int, data: bytes, times: int) -> None:
    data *= times
    assert decompress(kind, compress(kind, data), len(data), 1 << 20) == data


@given(st.sampled_from([1, 2, 3, 4]), st.binary(max_size=300), st.integers(0, 1000))
def test_random_bytes_raise_protocol_error_or_have_the_announced_size(kind: int, data: bytes, size: int) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(decompress(kind, data, size, 1000)) == size


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("announced", [0, 99, 101, 1000])
def test_a_wrong_announced_size_is_refused(kind: int, announced: int) -> None:
    with pytest.raises(ProtocolError):
        decompress(kind, compress(kind, b"x" * 100), announced, 1000)


def test_an_announced_size_above_the_limit_is_refused() -> None:
    with pytest.raises(ProtocolError, match="uncompressed size of 11 bytes exceeds the limit of 10"):
        decompress(1, b"", 11, 10)


def test_a_zlib_stream_that_is_only_flushed_is_read() -> None:
    compressor = zlib.compressobj()
    data = compressor.compress(b"hello") + compressor.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(2, data, 5, 100) == b"hello"


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ProtocolError, match="unknown compression type 9"):
        compress(9, b"x")
