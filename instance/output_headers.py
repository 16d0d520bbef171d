"""Headers of outputs: properties that name the input message.

Pulsar's instances write both properties on every output. They are over a hundred bytes, different for each message:
on outputs of ordinary size they would more than double what is stored, and no two messages of a batch would share
their metadata any more, which is what makes reading a batch fast. So they are written where somebody asks: on outputs
of messages that carry `TRIGGER_PROPERTY` and came alone (no batch, or a batch of one), which is how
``functions trigger`` sends them.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

from ..client.consumers.received import ReceivedEntry
from ..wire.message_id import MessageId
from ..wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata

TRIGGER_PROPERTY = "__pfn_trigger__"
INPUT_MESSAGE_ID = "__pfn_input_msg_id__"
INPUT_TOPIC = "__pfn_input_topic__"


def message_id_text(message_id: MessageId) -> str:
    """Return what `INPUT_MESSAGE_ID` says for a message."""
    return urlsafe_b64encode(message_id.serialize()).decode()


def message_id_of(entry: ReceivedEntry, index: int) -> MessageId:
    """Return the id of a message of an entry."""
    if not entry.is_batch:
        return entry.message_id
    return entry.message_id._replace(batch_index=index, batch_size=entry.num_messages)


def is_marked(entry: ReceivedEntry) -> bool:
    """Return whether the outputs of an entry must name their input."""
    headers = entry.headers
    if headers is None:
        properties = entry.metadata.properties
    elif len(headers) == 1:
        properties = headers[0].properties
    else:
        return False
    return bool(properties) and any(pair.key == TRIGGER_PROPERTY for pair in properties)


class HeaderMaker:
    """Makes the metadata of outputs that need some."""

    def __init__(self, forwards_properties: bool) -> None:
        """Prepare.

        Args:
            forwards_properties: outputs take over the properties of their input.
        """
        self._forwards = forwards_properties
        self._last_source: object = None
        self._last_header: SingleMessageMetadata | None = None

    def needs_headers(self, entry: ReceivedEntry) -> bool:
        """Return whether outputs of an entry may need metadata."""
        return self._forwards or is_marked(entry)

    def header(self, entry: ReceivedEntry, index: int) -> SingleMessageMetadata | None:
        """Return the metadata of the output of one message, None if it needs none.

        Messages of one batch share their metadata object where it is equal; so do outputs.
        """
        source = entry.metadata if entry.headers is None else entry.headers[index]
        marked = is_marked(entry)
        if not marked and source is self._last_source:
            return self._last_header
        properties = list(source.properties) if self._forwards else []
        if marked:
            message_id = message_id_text(message_id_of(entry, index))
            properties = [pair for pair in properties if pair.key != TRIGGER_PROPERTY]
            properties += [
                KeyValue(key=INPUT_MESSAGE_ID, value=message_id),
                KeyValue(key=INPUT_TOPIC, value=entry.topic),
            ]
        header = SingleMessageMetadata(payload_size=0, properties=properties) if properties else None
        if not marked:
            self._last_source, self._last_header = source, header
        return header
