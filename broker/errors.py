"""Which code of the protocol stands for which error, and which command says that a request failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BrokerError, InvalidTopicName, MetadataUnavailable, StorageError
from ..wire import replies
from ..wire.pulsar_api_pb2 import BaseCommand, ServerError

_OWN_FAILURES: dict[int, Callable[[int, int, str], BaseCommand]] = {
    BaseCommand.PARTITIONED_METADATA: replies.partitioned_metadata_failed,
    BaseCommand.LOOKUP: replies.lookup_failed,
    BaseCommand.GET_SCHEMA: replies.schema_failed,
    BaseCommand.GET_OR_CREATE_SCHEMA: replies.schema_creation_failed,
}
"""Requests whose clients wait for their own kind of response, and do not look for an ERROR."""


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


def failed(kind: int, request: Any, error: Exception) -> BaseCommand | None:
    """Return the command that says that a request failed; None for what is no request, or asks for no response."""
    if "request_id" not in request.DESCRIPTOR.fields_by_name or not request.HasField("request_id"):
        return None
    code, text = error_code(error)
    if kind == BaseCommand.ACK:
        return replies.ack_response(request.consumer_id, request.request_id, (code, text))
    return _OWN_FAILURES.get(kind, replies.error)(request.request_id, code, text)
