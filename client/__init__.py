"""The client: asyncio first (`AsyncClient`), with a blocking face over it (`blocking.Client`)."""

from ..wire.message_id import EARLIEST, LATEST, MessageId
from .client import AsyncClient
from .config import ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig
from .consumers.consumer import Consumer
from .consumers.merged import MergedConsumer
from .consumers.reader import Reader
from .consumers.received import DamagedEntry, Message, ReceivedEntry
from .producers.outgoing import OutgoingEntry, OutgoingMessage, encode_entry
from .producers.partitioned import PartitionedProducer
from .producers.producer import Producer

__all__ = [
    "EARLIEST",
    "LATEST",
    "AsyncClient",
    "ClientConfig",
    "Consumer",
    "ConsumerConfig",
    "DamagedEntry",
    "MergedConsumer",
    "Message",
    "MessageId",
    "OutgoingEntry",
    "OutgoingMessage",
    "PartitionedProducer",
    "Producer",
    "ProducerConfig",
    "Reader",
    "ReaderConfig",
    "ReceivedEntry",
    "encode_entry",
]
