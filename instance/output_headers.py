"""Create headers of outputs: properties that name the input message.

Pulsar's instances write both properties on every output. They have over a hundred bytes and differ for each message:
they would more than double the stored size of ordinary outputs, and the messages of a batch could no longer share their
metadata, which makes reading a batch fast. So they are written only on request: on outputs of messages that carry
`TRIGGER_PROPERTY` and were sent alone (no batch, or a batch of one), as ``functions trigger`` does.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence

from ..client.consumers.received import ReceivedEntry
from ..wire.batch import encode_attributes
from ..wire.message_id import MessageId
from ..wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
from .unit import Unit

TRIGGER_PROPERTY = "__pfn_trigger__"
_TRIGGER = TRIGGER_PROPERTY.encode()
INPUT_MESSAGE_ID = "__pfn_input_msg_id__"
INPUT_TOPIC = "__pfn_input_topic__"


def message_id_text(message_id: MessageId) -> str:
    """Return a message id as the value of `INPUT_MESSAGE_ID`."""
    return urlsafe_b64encode(message_id.serialize()).decode()


def message_id_of(entry: ReceivedEntry, index: int) -> MessageId:
    """Return the id of a message in an entry."""
    if not entry.is_batch:
        return entry.message_id
    ledger_id, entry_id, partition, _, _ = entry.message_id
    return MessageId(ledger_id, entry_id, partition, index, entry.num_messages)


def _is_marked(properties: bytes) -> bool:
    """Return whether outputs of a message with these properties must name their input."""
    if _TRIGGER not in properties:
        return False
    return any(pair.key == TRIGGER_PROPERTY for pair in SingleMessageMetadata.FromString(properties).properties)


class HeaderMaker:
    """Creates the metadata of outputs."""

    def __init__(self, forwards_properties: bool) -> None:
        """Create a maker of output headers.

        Args:
            forwards_properties: whether outputs inherit the properties of their input.
        """
        self._forwards = forwards_properties

    def of_unit(self, unit: Unit) -> list[bytes] | None:
        """Return the attributes of the outputs of a unit, as returned by `encode_attributes`.

        Returns:
            One item per position, empty for outputs without attributes; None if no output has any.
        """
        if not any(entry.is_batch or entry.has_properties for entry in unit.entries):
            return None  # unbatched messages without properties
        parts = [(len(indexes), self._of_entry(entry, indexes)) for _, entry, indexes in unit.parts()]
        if all(attributes is None for _, attributes in parts):
            return None
        made: list[bytes] = []
        for count, attributes in parts:
            made += [b""] * count if attributes is None else attributes
        return made

    def _of_entry(self, entry: ReceivedEntry, indexes: Sequence[int]) -> list[bytes] | None:
        headers = entry.headers
        if headers is None or len(headers) == 1:
            alone = entry.properties if headers is None else headers.encoded[0]
            if _is_marked(alone):
                return [self._naming_input(entry, index) for index in indexes]
            if headers is None:
                return [alone] if alone and self._forwards else None
        if not self._forwards:
            return None
        made = headers.properties()
        if not any(made):
            return None
        return made if len(indexes) == len(made) else [made[index] for index in indexes]

    def _naming_input(self, entry: ReceivedEntry, index: int) -> bytes:
        source = entry.metadata if entry.headers is None else entry.headers[index]
        properties = [pair for pair in source.properties if self._forwards and pair.key != TRIGGER_PROPERTY]
        properties += [
            KeyValue(key=INPUT_MESSAGE_ID, value=message_id_text(message_id_of(entry, index))),
            KeyValue(key=INPUT_TOPIC, value=entry.topic),
        ]
        return encode_attributes(SingleMessageMetadata(properties=properties))


class TracedHeaderMaker(HeaderMaker):
    """Creates attributes for each output, to which traced calls add their span context."""

    def of_unit(self, unit: Unit) -> list[bytes]:
        """Return the attributes of the outputs of a unit, which `Unit.made` shares with traced calls."""
        unit.made = super().of_unit(unit) or [b""] * len(unit)
        return unit.made
