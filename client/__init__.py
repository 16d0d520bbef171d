"""The client: asyncio first (`AsyncClient`), with a blocking face over it (`blocking.Client`)."""

from ..wire.message_id import EARLIEST, LATEST, MessageId
from .client import AsyncClient
from .config import ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig
from .consumer import Consumer
from .merged_consumer import MergedConsumer
from .outgoing import OutgoingEntry, OutgoingMessage, encode_entry
from .partitioned_producer import PartitionedProducer
from .producer import Producer
from .reader import Reader
from .received import DamagedEntry, Message, ReceivedEntry

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
