"""Protocol error codes, and error responses to requests."""

from __future__ import annotations

from typing import Any, cast

from google.protobuf.message import Message

from ..errors import BrokerError, InvalidTopicName, MetadataUnavailable, StorageError
from ..wire import pulsar_api_pb2 as pb
from ..wire.pulsar_api_pb2 import ServerError


def error_code(error: Exception) -> tuple[ServerError, str]:
    """Return the protocol code and the message of an error."""
    if isinstance(error, BrokerError):
        return cast(ServerError, error.code), str(error)
    if isinstance(error, InvalidTopicName):
        return ServerError.InvalidTopicName, str(error)
    if isinstance(error, MetadataUnavailable):
        return ServerError.MetadataError, str(error)
    if isinstance(error, StorageError):
        return ServerError.PersistenceError, str(error)
    return ServerError.UnknownError, f"{type(error).__name__}: {error}"


def failed(request: Any, error: Exception) -> Message | None:
    """Return the error response to a request, or None if the command expects no response.

    Some clients wait for a specific response type and ignore ERROR.
    """
    if "request_id" not in request.DESCRIPTOR.fields_by_name or not request.HasField("request_id"):
        return None
    id_ = request.request_id
    code, text = error_code(error)
    match request:
        case pb.CommandPartitionedTopicMetadata():
            return pb.CommandPartitionedTopicMetadataResponse(
                request_id=id_, response="Failed", error=code, message=text
            )
        case pb.CommandLookupTopic():
            return pb.CommandLookupTopicResponse(request_id=id_, response="Failed", error=code, message=text)
        case pb.CommandGetSchema():
            return pb.CommandGetSchemaResponse(request_id=id_, error_code=code, error_message=text)
        case pb.CommandGetOrCreateSchema():
            return pb.CommandGetOrCreateSchemaResponse(request_id=id_, error_code=code, error_message=text)
        case pb.CommandAck():
            return pb.CommandAckResponse(consumer_id=request.consumer_id, request_id=id_, error=code, message=text)
    return pb.CommandError(request_id=id_, error=code, message=text)
