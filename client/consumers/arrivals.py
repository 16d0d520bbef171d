"""Opens the entries received by one consumer, removes already processed messages, and queues the rest."""

from __future__ import annotations

from collections.abc import Callable

from ...wire import pulsar_api_pb2 as pb
from ...wire.frames import DEFAULT_MAX_MESSAGE_BYTES
from ...wire.runs import MessageRow
from ...wire.topic_name import TopicName
from .ack_tracker import words_of
from .acknowledger import Acknowledger
from .receive_queue import ReceiveQueue
from .received import DamagedEntry, EntryKey, ReceivedEntry, open_entry, open_rows
from .start import Resumption


class Arrivals:
    """Opens a consumer's received entries and queues new ones.

    Attributes:
        max_message_bytes: the broker's message size limit.
        epoch: number of redelivery requests for all messages; entries sent before the latest request are dropped.
        is_seeking: whether a seek is in progress, during which all entries are dropped.
    """

    def __init__(
        self,
        topic: TopicName,
        queue: ReceiveQueue,
        acks: Acknowledger,
        resumption: Resumption,
        release: Callable[[int], None],
        name_damage: Callable[[EntryKey, DamagedEntry], None],
    ):
        """Create the handler of a consumer's arrivals.

        Args:
            topic: the consumer's topic.
            queue: the queue for new entries.
            acks: used to recognise acknowledged messages.
            resumption: used to recognise messages that were already read.
            release: called with the permits of entries that are not queued.
            name_damage: called with unreadable entries, which are not queued.
        """
        self.max_message_bytes = DEFAULT_MAX_MESSAGE_BYTES
        self.epoch = 0
        self.is_seeking = False
        self._topic = topic.text
        self._partition = topic.partition
        self._queue = queue
        self._acks = acks
        self._resumption = resumption
        self._release = release
        self._name_damage = name_damage

    def take(self, message: pb.CommandMessage, payload: bytes) -> bool:
        """Handle an entry; return whether it was queued."""
        try:
            entry = open_entry(message, payload, self._topic, self._partition, self.max_message_bytes)
        except DamagedEntry as error:
            data = message.message_id
            self._drop_damaged((data.ledgerId, data.entryId), error)
            return False
        if self.is_seeking or (
            self.epoch and message.HasField("consumer_epoch") and message.consumer_epoch < self.epoch
        ):
            self._release(entry.permits)  # sent before the broker processed a seek or redelivery request
            return False
        is_known = bool(entry.ack_set) or self._resumption.skip is not None or self._acks.tracker.is_busy
        if is_known and not self._is_new(entry):
            return False
        self._queue.push(entry)
        return True

    def take_rows(self, rows: list[MessageRow]) -> bool:
        """Handle entries that arrived together, in order; return whether any was queued."""
        if self.is_seeking or self.epoch:
            rows = self._drop_stale(rows)
        entries = self._open(rows)
        if self._resumption.skip is not None or (entries and self._acks.tracker.may_know(entries)):
            entries = [entry for entry in entries if self._is_new(entry)]
        if not entries:
            return False
        self._queue.extend(entries)
        return True

    def _drop_stale(self, rows: list[MessageRow]) -> list[MessageRow]:
        """Return the rows without those sent before the broker processed a seek or redelivery request."""
        kept: list[MessageRow] = []
        stale: list[MessageRow] = []
        for row in rows:
            (stale if self.is_seeking or -1 < row[3] < self.epoch else kept).append(row)
        for entry in self._open(stale):
            self._release(entry.permits)
        return kept

    def _open(self, rows: list[MessageRow]) -> list[ReceivedEntry]:
        entries, damaged = open_rows(rows, self._topic, self._partition, self.max_message_bytes)
        for position, error in damaged:
            self._drop_damaged(position, error)
        return entries

    def _drop_damaged(self, position: EntryKey, error: DamagedEntry) -> None:
        self._name_damage(position, error)
        self._release(error.permits)

    def _is_new(self, entry: ReceivedEntry) -> bool:
        """Remove messages that the application has already received; return whether any remain."""
        wanted = self._resumption.new_messages(entry, entry.position)
        if wanted == 0:
            self._release(entry.permits)
            return False
        if wanted is not None:
            entry.ack_set = words_of(wanted)
        return True
