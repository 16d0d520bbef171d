"""The name of the table that keeps the state of a function."""

from __future__ import annotations

from ..wire.functions_pb2 import FunctionMetaData


def table_of(metadata: FunctionMetaData) -> str:
    """Return the name of the function's table.

    It names the uuid of the function's creation: one that is deleted and created again finds nothing of the old one,
    however late an instance of that still writes. Records of Pulsar's own worker have none.
    """
    details = metadata.functionDetails
    name = f"{details.tenant}/{details.namespace}/{details.name}"
    return f"{name}@{metadata.functionUuid}" if metadata.functionUuid else name
