"""Names that distinguish creations of a function: for its table, its instances' locks, and its producers.

The state store identifies tables and positions by such names, the broker identifies locks and, for deduplication,
producers. A function that is deleted and created again, or that restarts from an earlier message, must not be confused
with the previous one: it would find the old state, and its outputs would be dropped as duplicates.
"""

from __future__ import annotations

from ..state.names import with_epoch
from ..wire.functions_pb2 import FunctionMetaData
from .spec import InstanceSpec


def table_of(metadata: FunctionMetaData) -> str:
    """Return the name of the table that keeps the function's state.

    It names the uuid of the function's creation: one that is deleted and created again finds nothing of the old one,
    however late an instance of that still writes. And it tells the epoch of the state, so that no instance of before an
    earlier state was put back can change what is there since.
    """
    return with_epoch(_of_creation(metadata, ""), metadata.stateEpoch)


def lock_name(metadata: FunctionMetaData, instance_id: int) -> str:
    """Return the name of the lock of an instance: the instance's own, and the function's id."""
    return _of_creation(metadata, f":{instance_id}")


def _of_creation(metadata: FunctionMetaData, part: str) -> str:
    """Return the name of a part of the function, with the uuid, which records of Pulsar's own worker do not have."""
    details = metadata.functionDetails
    name = f"{details.tenant}/{details.namespace}/{details.name}{part}"
    return f"{name}@{metadata.functionUuid}" if metadata.functionUuid else name


def incarnation_of(metadata: FunctionMetaData) -> str:
    """Return the name of a function's incarnation: its uuid and how often its cursors were reset."""
    # Records that Pulsar's own worker wrote have no uuid; two functions of one name were not created at the same time.
    return f"{metadata.functionUuid or metadata.createTime}/{metadata.cursorIncarnation}"


def producer_name(spec: InstanceSpec, partition: str) -> str:
    """Return the name of all producers that send what an input partition makes."""
    return f"{spec.function_name}/{incarnation_of(spec.metadata)}/{partition}"
