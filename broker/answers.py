"""Which code of the protocol stands for which error."""

from __future__ import annotations

from ..errors import BrokerError, InvalidTopicName, MetadataUnavailable, StorageError
from ..wire.pulsar_api_pb2 import ServerError


def error_code(error: Exception) -> tuple[int, str]:
    """Return the protocol's code and the text for an error."""
    if isinstance(error, BrokerError):
        return error.code, str(error)
    if isinstance(error, InvalidTopicName):
        return ServerError.InvalidTopicName, str(error)
    if isinstance(error, MetadataUnavailable):
        return ServerError.MetadataError, str(error)
    if isinstance(error, StorageError):
        return ServerError.PersistenceError, str(error)
    return ServerError.UnknownError, f"{type(error).__name__}: {error}"
