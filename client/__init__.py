"""The client of topics and functions: `AsyncClient` for asyncio, and `Client`, which blocks."""

from typing import TYPE_CHECKING

from .. import lazy_names
from ..errors import (
    BrokerError,
    ClosedError,
    ConnectionLost,
    InvalidConfig,
    InvalidTopicName,
    MagnetarError,
    MessageTooLarge,
    OperationTimeout,
    PackageError,
    ProducerFenced,
    ProtocolError,
    QueueFull,
    RequestRefused,
    TopicNotFound,
    TopicTerminated,
    UnpicklableFunction,
)
from ..wire.message_id import EARLIEST, LATEST, MessageId
from .client import AsyncClient
from .config import ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig
from .consumers.consumer import Consumer
from .consumers.merged import MergedConsumer
from .consumers.reader import Reader
from .consumers.received import DamagedEntry, Message, ReceivedEntry
from .lock import Lock
from .outgoing_message import NO_VALUE, Base64Key, OutgoingMessage
from .producers.outgoing import OutgoingEntry, encode_entry
from .producers.partitioned import PartitionedProducer
from .producers.producer import Producer

if TYPE_CHECKING:
    from .blocking import Client
    from .deploy.functions import AsyncFunctions, Functions
else:  # threads, httpx and cloudpickle: not for each process that has the asyncio client
    __getattr__ = lazy_names(__name__, {".blocking": ["Client"], ".deploy.functions": ["AsyncFunctions", "Functions"]})

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_VALUE",
    "AsyncClient",
    "AsyncFunctions",
    "Base64Key",
    "BrokerError",
    "Client",
    "ClientConfig",
    "ClosedError",
    "ConnectionLost",
    "Consumer",
    "ConsumerConfig",
    "DamagedEntry",
    "Functions",
    "InvalidConfig",
    "InvalidTopicName",
    "Lock",
    "MagnetarError",
    "MergedConsumer",
    "Message",
    "MessageId",
    "MessageTooLarge",
    "OperationTimeout",
    "OutgoingEntry",
    "OutgoingMessage",
    "PackageError",
    "PartitionedProducer",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProtocolError",
    "QueueFull",
    "Reader",
    "ReaderConfig",
    "ReceivedEntry",
    "RequestRefused",
    "TopicNotFound",
    "TopicTerminated",
    "UnpicklableFunction",
    "encode_entry",
]
