import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import ProtocolError
from magnetar.wire.payload import open_payload, seal, strip_checksum, verify_checksum
from magnetar.wire.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

METADATA = MessageMetadata(producer_name="p", sequence_id=3, publish_time=9)


@given(st.binary(max_size=500))
def test_a_sealed_payload_opens_to_what_went_in(body: bytes) -> None:
    sealed = seal(METADATA, body)
    metadata, offset = open_payload(sealed)
    assert (metadata, sealed[offset:]) == (METADATA, body)
    assert verify_checksum(sealed) is True


@given(st.binary(max_size=100), st.data())
def test_every_flipped_bit_behind_the_magic_breaks_the_checksum(body: bytes, data: st.DataObject) -> None:
    sealed = bytearray(seal(METADATA, body))
    sealed[data.draw(st.integers(2, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert verify_checksum(bytes(sealed)) is False


def test_a_payload_without_checksum_is_neither_right_nor_wrong() -> None:
    stripped = strip_checksum(seal(METADATA, b"x"))
    assert verify_checksum(stripped) is None
    assert open_payload(stripped)[0] == METADATA


def test_the_brokers_own_metadata_is_skipped() -> None:
    own = BrokerEntryMetadata(index=5).SerializeToString()
    sealed = b"\x0e\x02" + len(own).to_bytes(4, "big") + own + seal(METADATA, b"body")
    metadata, offset = open_payload(sealed)
    assert (metadata, sealed[offset:]) == (METADATA, b"body")
    assert verify_checksum(sealed) is True
    assert strip_checksum(sealed) == strip_checksum(seal(METADATA, b"body"))


@given(st.binary(max_size=60))
def test_random_bytes_open_or_raise_protocol_error(data: bytes) -> None:
    verify_checksum(data)
    try:
        _, offset = open_payload(data)
    except ProtocolError:
        return
    assert offset <= len(data)


def test_metadata_larger_than_the_section_is_refused() -> None:
    with pytest.raises(ProtocolError, match="metadata of 4096 bytes exceeds its payload section of 8 bytes"):
        open_payload(b"\x00\x00\x10\x00abcd")
