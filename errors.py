"""Every error that Magnetar raises on purpose, and the table of the protocol's error codes.

One root; below it, who failed and what to do: the peer broke the protocol, you used something closed, the
network went away, the broker refused. A message is fact, numbers, remedy, on one line.

    MagnetarError
    ├── ProtocolError          the peer sent what the protocol forbids; the connection is closed
    │   ├── FrameTooLarge
    │   └── ForeignProtocol    it is not a broker, but an HTTP port for example
    ├── InvalidTopicName       the text is no topic name
    ├── InvalidPattern         the text is no regular expression
    │   └── PatternNotSupported  it is one of Java's, with what is not supported here
    ├── InvalidConfig          a setting is unknown, out of range or not supported
    ├── PackageError           a function's package is unreadable or lacks what it should hold
    │   └── UnpicklableFunction  a function refers to something that belongs to its process
    ├── FunctionExists         a function of that name is there already
    ├── OutOfDate              the function changed since the request was made
    ├── NotLeader              another worker decides
    ├── RequestRefused         a REST request is answered with an error status
    ├── ClosedError            you used a client, producer or consumer after closing it
    ├── ConnectionLost         the network or the broker went away; retried where the protocol allows
    ├── TlsFailed              a certificate is refused, by this side or the other, or there is no TLS there
    ├── CredentialsUnavailable what shows who we are cannot be read or fetched now
    ├── OperationTimeout       no answer in time
    ├── QueueFull              a bounded queue or memory limit is full and blocking is off
    ├── MessageTooLarge        a message or batch exceeds what the broker takes
    ├── SchemaSerializationError  a value does not fit its schema, or bytes are no value of it
    ├── CryptoError            a key for messages is missing or cannot be used, or a message cannot be decrypted
    ├── DataLoss               what was to be read is gone, or does not come
    ├── SparkFailed            Spark did not start, or ended by itself
    ├── FunctionLoadError      the code of a function cannot be loaded or run
    ├── StateUnavailable       a function asked for state or a secret where there is none
    ├── StateStoreUnavailable  the table service cannot be reached, or did not answer in time; try again
    ├── StateStoreFailed       the table service's disk or database file failed; nothing of the call was kept
    ├── StateRefused           a key, value or number that the table service does not take
    ├── FencedByPosition       another instance went on with the input; this one must stop
    ├── StorageError           the disk refused or holds damaged data
    │   ├── DataDirectoryInUse
    │   └── MetadataUnavailable  the server of the metadata store does not answer; try again
    ├── BadVersion             a metadata record or a state key is not at the version that was expected
    └── BrokerError            the broker answered with an error code; one subclass per code
"""

from __future__ import annotations


class MagnetarError(Exception):
    """Root of all errors raised on purpose."""


class ProtocolError(MagnetarError):
    """The peer sent bytes or a command that the protocol does not allow."""


class FrameTooLarge(ProtocolError):
    """A frame announces more bytes than the limit; nothing of it was buffered."""


class ForeignProtocol(ProtocolError):
    """The peer does not speak Pulsar's binary protocol: it is an HTTP port, for example.

    Attributes:
        is_final: True, as repeating the same request cannot help.
    """

    is_final = True


class InvalidTopicName(MagnetarError):
    """The text cannot be read as a topic name."""


class InvalidPattern(MagnetarError):
    """The text is no regular expression."""


class PatternNotSupported(InvalidPattern):
    """The text is a regular expression of Java's with something that is not supported, or too large."""


class InvalidConfig(MagnetarError):
    """A setting is unknown, out of range, contradictory or not supported yet."""


class PackageError(MagnetarError):
    """A function's package cannot be read, is too large, or lacks what the function names."""


class UnpicklableFunction(PackageError):
    """A function cannot be pickled, for it refers to something that belongs to its process; nothing was sent."""


FunctionCannotTravel = UnpicklableFunction
"""Its name in earlier versions."""


class FunctionExists(MagnetarError):
    """A function of that name is there already."""


class DeploymentFailed(MagnetarError):
    """A function was created or changed, and its new version does not come up.

    Attributes:
        details: what its instance says, with the traceback if there is one; empty if it says nothing.
    """

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


class OutOfDate(MagnetarError):
    """The function changed since the request was made; look again and repeat."""


class NotLeader(MagnetarError):
    """The request belongs to the worker that leads."""


class RequestRefused(MagnetarError):
    """A request over REST is answered with an error.

    Attributes:
        status: the HTTP status of the answer; the message is its reason.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ClosedError(MagnetarError):
    """The object was closed by its user before this call."""


class ConnectionLost(MagnetarError):
    """The connection to the broker broke or could not be made."""


class TlsFailed(MagnetarError):
    """No TLS connection: one side refuses the other's certificate, or the other does not speak TLS."""


class CredentialsUnavailable(MagnetarError):
    """What shows who we are, or a certificate, cannot be read or fetched now."""


class OperationTimeout(MagnetarError):
    """No answer within the operation timeout, or no message within the timeout of `receive`."""


Timeout = OperationTimeout
"""The same error by the name that Pulsar's Python client has for it."""


class QueueFull(MagnetarError):
    """A bounded queue is full and the caller asked not to block."""


class MessageTooLarge(MagnetarError):
    """A message or batch exceeds the largest size that the broker takes."""


class SchemaSerializationError(MagnetarError):
    """A value does not fit the schema of its producer, or the bytes of a message are no value of the consumer's."""


class CryptoError(MagnetarError):
    """A key for encrypted messages is missing or cannot be used, or a message cannot be decrypted."""


class DataLoss(MagnetarError):
    """Messages that were to be read are gone, or do not come in time."""


class SparkFailed(MagnetarError):
    """Spark, or the Java that runs it, did not start or ended by itself."""


class RunRefused(MagnetarError):
    """A function that works in runs cannot begin one now."""


class RunNotYet(RunRefused):
    """A function that works in runs is about to be ready to begin one."""


class FunctionLoadError(MagnetarError):
    """The code of a function cannot be found, imported or called."""


class StateUnavailable(MagnetarError):
    """A function used its state, and there is no state store; unless the function handles it, its instance stops."""


class StateStoreUnavailable(MagnetarError):
    """The table service cannot be reached or did not answer in time; whether a change was made is not known."""


class StateStoreFailed(MagnetarError):
    """The table service's disk or database file failed; an operator must look at it."""


class StateRefused(MagnetarError):
    """The table service does not take a change or a question; nothing of the call was kept.

    Attributes:
        key: the key that it is about; None if it is about the call as a whole.
    """

    def __init__(self, reason: str, key: bytes | None = None) -> None:
        super().__init__(reason)
        self.key = key


class FencedByPosition(MagnetarError):
    """The input was taken further by another instance; nothing was changed, and this instance must stop."""


class StorageError(MagnetarError):
    """The disk refused an operation, or what it holds is damaged."""


class DataDirectoryInUse(StorageError):
    """Another broker holds the lock of the data directory."""


class MetadataUnavailable(StorageError):
    """The server that keeps the metadata cannot be reached; try again."""


class BadVersion(MagnetarError):
    """A metadata record or a key of a state table is not at the version that was expected; nothing was changed."""


BROKER_ERRORS: dict[int, type[BrokerError]] = {}
"""Every error of the broker by its code."""


class BrokerError(MagnetarError):
    """The broker answered with an error.

    Attributes:
        code: number of the protocol's ServerError.
        is_final: True if repeating the same request cannot help.
    """

    code = 0
    is_final = False

    def __init_subclass__(cls, *, code: int | None = None, is_final: bool = False) -> None:
        """Take the class as the error of a code."""
        if code is not None:
            cls.code, cls.is_final = code, is_final
            BROKER_ERRORS[code] = cls


class UnknownBrokerError(BrokerError, code=0):
    """ServerError.UnknownError, or a code that this version does not know."""


class MetadataError(BrokerError, code=1):
    """The broker's metadata store failed, or the request contradicts it."""


class PersistenceError(BrokerError, code=2):
    """The broker could not write to its storage."""


class AuthenticationError(BrokerError, code=3, is_final=True):
    """The credentials were refused."""


class AuthorizationError(BrokerError, code=4, is_final=True):
    """The role lacks the permission."""


class ConsumerBusy(BrokerError, code=5, is_final=True):
    """The subscription has a consumer that excludes this one."""


class ServiceNotReady(BrokerError, code=6):
    """The broker, topic or subscription is not ready; try again."""


class ProducerBlockedQuotaExceeded(BrokerError, code=7, is_final=True):
    """The backlog quota is used up and producers wait."""


class ProducerBlockedQuotaExceededRefused(BrokerError, code=8, is_final=True):
    """The backlog quota is used up and producers are refused."""


class ChecksumError(BrokerError, code=9, is_final=True):
    """The CRC-32C of an entry is wrong."""


class UnsupportedVersion(BrokerError, code=10, is_final=True):
    """The protocol version is not supported."""


class TopicNotFound(BrokerError, code=11, is_final=True):
    """The topic, or its namespace or tenant, does not exist."""


class SubscriptionNotFound(BrokerError, code=12):
    """The subscription does not exist."""


class ConsumerNotFound(BrokerError, code=13):
    """The consumer does not exist."""


class TooManyRequests(BrokerError, code=14, is_final=True):
    """A limit of the broker on concurrent requests is reached."""


class TopicTerminated(BrokerError, code=15, is_final=True):
    """The topic takes no more messages."""


class ProducerBusy(BrokerError, code=16, is_final=True):
    """A producer of that name, or an exclusive one, is connected."""


class TopicNameRefused(BrokerError, code=17, is_final=True):
    """The broker says that the text is no topic name."""


class IncompatibleSchema(BrokerError, code=18, is_final=True):
    """The schema does not fit the topic's."""


class ConsumerAssignError(BrokerError, code=19, is_final=True):
    """The consumer cannot be given keys."""


class TransactionCoordinatorNotFound(BrokerError, code=20):
    """There is no such transaction coordinator."""


class InvalidTransactionStatus(BrokerError, code=21):
    """The transaction is in another state."""


class NotAllowed(BrokerError, code=22, is_final=True):
    """The operation is not allowed here."""


class TransactionConflict(BrokerError, code=23):
    """Another transaction acknowledged the message."""


class TransactionNotFound(BrokerError, code=24):
    """There is no such transaction."""


class ProducerFenced(BrokerError, code=25, is_final=True):
    """Another exclusive producer took the topic."""


def broker_error(code: int, message: str) -> BrokerError:
    """Return the error for a ServerError code; unknown codes become UnknownBrokerError."""
    return BROKER_ERRORS.get(code, UnknownBrokerError)(message)
