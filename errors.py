"""All errors that Magnetar raises deliberately, and the table of the protocol's error codes.

All errors share one root class; subclasses indicate what failed: for example, the peer violated the protocol, or the
connection was lost. A message is a single line that states the problem, the value, and the remedy.

    MagnetarError
    ├── ProtocolError          the peer violated the protocol; the connection is closed
    │   ├── FrameTooLarge
    │   └── ForeignProtocol    the peer is not a broker, for example an HTTP port
    ├── InvalidTopicName       the string is not a valid topic name
    ├── InvalidPattern         the string is not a valid regular expression
    │   └── PatternNotSupported  the pattern uses an unsupported construct of Java
    ├── InvalidConfig          a setting is unknown, out of range or not supported
    ├── PackageError           a function's package is unreadable or incomplete
    │   └── UnpicklableFunction  a function refers to an object that cannot be pickled
    ├── FunctionExists         a function of that name already exists
    ├── OutOfDate              the function changed since the request was made
    ├── NotLeader              another worker is the leader
    ├── RequestRefused         a REST request returned an error status
    ├── ClosedError            a client, producer or consumer was used after it was closed
    ├── ConnectionLost         the connection to the broker was lost; retried where the protocol allows
    ├── TlsFailed              either side rejected a certificate, or the server does not speak TLS
    ├── CredentialsUnavailable the client's credentials cannot be read or fetched
    ├── OperationTimeout       no response was received in time
    ├── QueueFull              a bounded queue or memory limit is full and blocking is off
    ├── MessageTooLarge        a message or batch exceeds the broker's size limit
    ├── SchemaSerializationError  a value does not fit its schema, or bytes cannot be decoded with it
    ├── CryptoError            an encryption key is missing or unusable, or a message cannot be decrypted
    ├── DataLoss               data to be read was deleted, or does not arrive
    ├── SparkFailed            Spark did not start, or terminated unexpectedly
    ├── FunctionLoadError      the code of a function cannot be loaded or run
    ├── StateUnavailable       a function used state or a secret that is not configured
    ├── StateStoreUnavailable  the table service is unreachable or did not respond in time; retry later
    ├── StateStoreFailed       the table service's disk or database file failed; the call had no effect
    ├── StateRefused           the table service rejects a key, value or number
    ├── FencedByPosition       another instance took over the input; this one must stop
    ├── StorageError           the disk failed or holds damaged data
    │   ├── DataDirectoryInUse
    │   └── MetadataUnavailable  the metadata store's server does not respond; retry later
    ├── BadVersion             a metadata record or a state key does not have the expected version
    └── BrokerError            the broker answered with an error code; one subclass per code
"""

from __future__ import annotations


class MagnetarError(Exception):
    """Root class of all errors that are raised deliberately."""


class ProtocolError(MagnetarError):
    """The peer sent bytes or a command that the protocol does not allow."""


class FrameTooLarge(ProtocolError):
    """The announced size of a frame exceeds the limit; nothing was buffered."""


class ForeignProtocol(ProtocolError):
    """The peer does not speak Pulsar's binary protocol; it may be an HTTP port.

    Attributes:
        is_final: True, as retrying the same request cannot help.
    """

    is_final = True


class InvalidTopicName(MagnetarError):
    """The string is not a valid topic name."""


class InvalidPattern(MagnetarError):
    """The string is not a valid regular expression."""


class PatternNotSupported(InvalidPattern):
    """The string is a Java regular expression that is too large or has an unsupported construct."""


class InvalidConfig(MagnetarError):
    """A setting is unknown, out of range, contradictory or not supported yet."""


class PackageError(MagnetarError):
    """A function's package cannot be read, is too large, or lacks a name that the function refers to."""


class UnpicklableFunction(PackageError):
    """A function cannot be pickled, because it refers to an unpicklable object; nothing was sent."""


FunctionCannotTravel = UnpicklableFunction
"""Former name of this error."""


class FunctionExists(MagnetarError):
    """A function of that name already exists."""


class DeploymentFailed(MagnetarError):
    """A function was created or updated, but its new version does not start.

    Attributes:
        details: the instance's error, with the traceback if available; may be empty.
    """

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


class OutOfDate(MagnetarError):
    """The function changed since the request was made; read it again and retry."""


class NotLeader(MagnetarError):
    """The request must be sent to the leader."""


class RequestRefused(MagnetarError):
    """A REST request returned an error status.

    Attributes:
        status: HTTP status of the response; the message is its reason.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ClosedError(MagnetarError):
    """The object was closed before this call."""


class ConnectionLost(MagnetarError):
    """The connection to the broker was lost or could not be established."""


class TlsFailed(MagnetarError):
    """The TLS handshake failed: one side rejected the other's certificate, or the server does not speak TLS."""


class CredentialsUnavailable(MagnetarError):
    """The client's credentials, or a certificate, cannot currently be read or fetched."""


class OperationTimeout(MagnetarError):
    """No response within the operation timeout, or no message within the timeout of `receive`."""


Timeout = OperationTimeout
"""Alias with this error's name in Pulsar's Python client."""


class QueueFull(MagnetarError):
    """A bounded queue is full and blocking is disabled."""


class MessageTooLarge(MagnetarError):
    """A message or batch exceeds the broker's size limit."""


class SchemaSerializationError(MagnetarError):
    """A value does not fit the producer's schema, or a message cannot be decoded with the consumer's schema."""


class CryptoError(MagnetarError):
    """An encryption key is missing or cannot be used, or a message cannot be decrypted."""


class DataLoss(MagnetarError):
    """Messages to be read were deleted, or do not arrive in time."""


class SparkFailed(MagnetarError):
    """Spark, or its Java process, did not start or terminated unexpectedly."""


class RunRefused(MagnetarError):
    """A function that works in runs cannot currently start one."""


class RunNotYet(RunRefused):
    """A function that works in runs will be able to start one shortly."""


class FunctionLoadError(MagnetarError):
    """The code of a function cannot be found, imported or called."""


class StateUnavailable(MagnetarError):
    """A function used its state without a state store; unless the function handles this, its instance stops."""


class StateStoreUnavailable(MagnetarError):
    """The table service is unreachable or did not respond in time; a change may or may not have taken effect."""


class StateStoreFailed(MagnetarError):
    """The table service's disk or database file failed and needs an operator's attention."""


class StateRefused(MagnetarError):
    """The table service rejected a change or a query; the call had no effect.

    Attributes:
        key: the key at fault; None if the error concerns the whole call.
    """

    def __init__(self, reason: str, key: bytes | None = None) -> None:
        super().__init__(reason)
        self.key = key


class FencedByPosition(MagnetarError):
    """Another instance took over the input; nothing was changed, and this instance must stop."""


class StorageError(MagnetarError):
    """A disk operation failed, or the stored data is damaged."""


class DataDirectoryInUse(StorageError):
    """The data directory is locked by another broker."""


class MetadataUnavailable(StorageError):
    """The metadata store's server is unreachable; retry later."""


class BadVersion(MagnetarError):
    """A metadata record or a state table key does not have the expected version; nothing was changed."""


BROKER_ERRORS: dict[int, type[BrokerError]] = {}
"""The error class of each broker error code."""


class BrokerError(MagnetarError):
    """The broker returned an error.

    Attributes:
        code: number of the protocol's ServerError.
        is_final: True if retrying the same request cannot help.
    """

    code = 0
    is_final = False

    def __init_subclass__(cls, *, code: int | None = None, is_final: bool = False) -> None:
        """Register the class for an error code."""
        if code is not None:
            cls.code, cls.is_final = code, is_final
            BROKER_ERRORS[code] = cls


class UnknownBrokerError(BrokerError, code=0):
    """ServerError.UnknownError, or a code unknown to this version."""


class MetadataError(BrokerError, code=1):
    """The broker's metadata store failed, or the request conflicts with it."""


class PersistenceError(BrokerError, code=2):
    """The broker could not write to its storage."""


class AuthenticationError(BrokerError, code=3, is_final=True):
    """The credentials were rejected."""


class AuthorizationError(BrokerError, code=4, is_final=True):
    """The role lacks the permission."""


class ConsumerBusy(BrokerError, code=5, is_final=True):
    """The subscription has a consumer that excludes this one."""


class ServiceNotReady(BrokerError, code=6):
    """The broker, topic or subscription is not ready; retry later."""


class ProducerBlockedQuotaExceeded(BrokerError, code=7, is_final=True):
    """The backlog quota is exceeded, and its policy holds producers."""


class ProducerBlockedQuotaExceededRefused(BrokerError, code=8, is_final=True):
    """The backlog quota is exceeded, and its policy rejects producers."""


class ChecksumError(BrokerError, code=9, is_final=True):
    """An entry's CRC-32C checksum does not match."""


class UnsupportedVersion(BrokerError, code=10, is_final=True):
    """The protocol version is not supported."""


class TopicNotFound(BrokerError, code=11, is_final=True):
    """The topic, or its namespace or tenant, does not exist."""


class SubscriptionNotFound(BrokerError, code=12):
    """The subscription does not exist."""


class ConsumerNotFound(BrokerError, code=13):
    """The consumer does not exist."""


class TooManyRequests(BrokerError, code=14, is_final=True):
    """The broker's limit of concurrent requests is reached."""


class TopicTerminated(BrokerError, code=15, is_final=True):
    """The topic was terminated and accepts no more messages."""


class ProducerBusy(BrokerError, code=16, is_final=True):
    """A producer of that name, or an exclusive producer, is connected."""


class TopicNameRefused(BrokerError, code=17, is_final=True):
    """The broker rejected an invalid topic name."""


class IncompatibleSchema(BrokerError, code=18, is_final=True):
    """The schema is incompatible with the topic's schema."""


class ConsumerAssignError(BrokerError, code=19, is_final=True):
    """The consumer cannot be assigned keys."""


class TransactionCoordinatorNotFound(BrokerError, code=20):
    """The transaction coordinator does not exist."""


class InvalidTransactionStatus(BrokerError, code=21):
    """The transaction is not in a state that allows the operation."""


class NotAllowed(BrokerError, code=22, is_final=True):
    """The operation is not allowed here."""


class TransactionConflict(BrokerError, code=23):
    """The message was acknowledged in another transaction."""


class TransactionNotFound(BrokerError, code=24):
    """The transaction does not exist."""


class ProducerFenced(BrokerError, code=25, is_final=True):
    """Another exclusive producer took over the topic."""


def broker_error(code: int, message: str) -> BrokerError:
    """Return the error for a ServerError code; unknown codes become UnknownBrokerError."""
    return BROKER_ERRORS.get(code, UnknownBrokerError)(message)
