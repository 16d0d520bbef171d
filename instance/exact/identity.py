"""Name of a function's incarnation: from its creation, or the last reset of its cursors, to its end.

The broker's deduplication knows producers by name, the state store positions by function. A function that is deleted
and created again, or begins anew at an earlier message, must not be taken for the one before: what it makes would be
dropped as made already.
"""

from __future__ import annotations

from ...wire.functions_pb2 import FunctionMetaData
from ..spec import InstanceSpec


def incarnation_of(metadata: FunctionMetaData) -> str:
    """Return the name of a function's incarnation: its uuid and how often its cursors were reset."""
    # Records that Pulsar's own worker wrote have no uuid; two functions of one name were not created at the same time.
    return f"{metadata.functionUuid or metadata.createTime}/{metadata.cursorIncarnation}"


def producer_name(spec: InstanceSpec, partition: str) -> str:
    """Return the name of all producers that send what an input partition makes."""
    return f"{spec.function_name}/{incarnation_of(spec.metadata)}/{partition}"
