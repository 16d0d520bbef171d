"""Client for topics and functions: `AsyncClient` for asyncio, and the blocking `Client`."""

from typing import TYPE_CHECKING

from .. import lazy_names
from ..errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClosedError,
    ConnectionLost,
    CredentialsUnavailable,
    CryptoError,
    DeploymentFailed,
    ForeignProtocol,
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
    SchemaSerializationError,
    Timeout,
    TlsFailed,
    TopicNotFound,
    TopicTerminated,
    UnpicklableFunction,
)
from ..security.credentials.authentication import Authentication
from ..wire.message_id import EARLIEST, LATEST, MessageId
from .client import AsyncClient
from .config import (
    ClientConfig,
    ConsumerConfig,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ProducerConfig,
    ReaderConfig,
)
from .consumers.consumer import Consumer
from .consumers.merged import MergedConsumer
from .consumers.reader import Reader
from .consumers.received import DamagedEntry, Message, ReceivedEntry, TypedMessage
from .encryption.keys import CryptoKeyReader, EncryptionKey, FileKeyReader, NamedKeyReader, UriKeyReader
from .interceptors import ConsumerInterceptor, ProducerInterceptor
from .lock import Lock
from .outgoing_message import NO_VALUE, Base64Key, OutgoingMessage
from .producers.outgoing import OutgoingEntry, encode_entry
from .producers.partitioned import PartitionedProducer
from .producers.producer import Producer
from .schemas.schema import Schema, SchemaInfo
from .statistics import ConsumerStatistics, ProducerStatistics
from .table_view import TableView
from .typed.consumer import TypedConsumer, TypedReader
from .typed.producer import TypedProducer

if TYPE_CHECKING:
    from ..security.credentials.authentication_basic import AuthenticationBasic
    from ..security.credentials.authentication_oauth2 import AuthenticationOAuth2
    from ..security.credentials.authentication_tls import AuthenticationTls
    from ..security.credentials.authentication_token import AuthenticationToken
    from .blocking import Client
    from .deploy.functions import AsyncFunctions, Functions
    from .schemas.auto import AutoConsumeSchema, AutoProduceBytesSchema
    from .schemas.avro_schema import AvroSchema
    from .schemas.json_schema import JsonSchema
    from .schemas.key_value import KeyValue, KeyValueSchema
    from .schemas.primitives import (
        BooleanSchema,
        BytesSchema,
        DateSchema,
        DoubleSchema,
        FloatSchema,
        InstantSchema,
        Int8Schema,
        Int16Schema,
        Int32Schema,
        Int64Schema,
        LocalDateSchema,
        LocalDateTimeSchema,
        LocalTimeSchema,
        StringSchema,
        TimeSchema,
        TimestampSchema,
    )
    from .schemas.protobuf_native import ProtobufNativeSchema
    from .schemas.protobuf_schema import ProtobufSchema
    from .schemas.records import Base64Bytes, Float32, Int32
else:  # loads threads, httpx, cloudpickle, schemas and credential plugins, which asyncio clients may not need
    __getattr__ = lazy_names(
        __name__,
        {
            "..security.credentials.authentication_basic": ["AuthenticationBasic"],
            "..security.credentials.authentication_oauth2": ["AuthenticationOAuth2"],
            "..security.credentials.authentication_tls": ["AuthenticationTls"],
            "..security.credentials.authentication_token": ["AuthenticationToken"],
            ".blocking": ["Client"],
            ".deploy.functions": ["AsyncFunctions", "Functions"],
            ".schemas.auto": ["AutoConsumeSchema", "AutoProduceBytesSchema"],
            ".schemas.avro_schema": ["AvroSchema"],
            ".schemas.json_schema": ["JsonSchema"],
            ".schemas.key_value": ["KeyValue", "KeyValueSchema"],
            ".schemas.primitives": [
                "BooleanSchema",
                "BytesSchema",
                "DateSchema",
                "DoubleSchema",
                "FloatSchema",
                "InstantSchema",
                "Int8Schema",
                "Int16Schema",
                "Int32Schema",
                "Int64Schema",
                "LocalDateSchema",
                "LocalDateTimeSchema",
                "LocalTimeSchema",
                "StringSchema",
                "TimeSchema",
                "TimestampSchema",
            ],
            ".schemas.protobuf_native": ["ProtobufNativeSchema"],
            ".schemas.protobuf_schema": ["ProtobufSchema"],
            ".schemas.records": ["Base64Bytes", "Float32", "Int32"],
        },
    )

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_VALUE",
    "AsyncClient",
    "AsyncFunctions",
    "Authentication",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOAuth2",
    "AuthenticationTls",
    "AuthenticationToken",
    "AuthorizationError",
    "AutoConsumeSchema",
    "AutoProduceBytesSchema",
    "AvroSchema",
    "Base64Bytes",
    "Base64Key",
    "BooleanSchema",
    "BrokerError",
    "BytesSchema",
    "Client",
    "ClientConfig",
    "ClosedError",
    "ConnectionLost",
    "Consumer",
    "ConsumerConfig",
    "ConsumerDeadLetterPolicy",
    "ConsumerInterceptor",
    "ConsumerKeySharedPolicy",
    "ConsumerStatistics",
    "CredentialsUnavailable",
    "CryptoError",
    "CryptoKeyReader",
    "DamagedEntry",
    "DateSchema",
    "DeploymentFailed",
    "DoubleSchema",
    "EncryptionKey",
    "FileKeyReader",
    "Float32",
    "FloatSchema",
    "ForeignProtocol",
    "Functions",
    "InstantSchema",
    "Int8Schema",
    "Int16Schema",
    "Int32",
    "Int32Schema",
    "Int64Schema",
    "InvalidConfig",
    "InvalidTopicName",
    "JsonSchema",
    "KeyValue",
    "KeyValueSchema",
    "LocalDateSchema",
    "LocalDateTimeSchema",
    "LocalTimeSchema",
    "Lock",
    "MagnetarError",
    "MergedConsumer",
    "Message",
    "MessageId",
    "MessageTooLarge",
    "NamedKeyReader",
    "OperationTimeout",
    "OutgoingEntry",
    "OutgoingMessage",
    "PackageError",
    "PartitionedProducer",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerInterceptor",
    "ProducerStatistics",
    "ProtobufNativeSchema",
    "ProtobufSchema",
    "ProtocolError",
    "QueueFull",
    "Reader",
    "ReaderConfig",
    "ReceivedEntry",
    "RequestRefused",
    "Schema",
    "SchemaInfo",
    "SchemaSerializationError",
    "StringSchema",
    "TableView",
    "TimeSchema",
    "Timeout",
    "TimestampSchema",
    "TlsFailed",
    "TopicNotFound",
    "TopicTerminated",
    "TypedConsumer",
    "TypedMessage",
    "TypedProducer",
    "TypedReader",
    "UnpicklableFunction",
    "UriKeyReader",
    "encode_entry",
]
