"""Create names that distinguish incarnations of a function: for its table, locks and producers.

The state store identifies tables and positions by such names; the broker identifies locks and, for deduplication,
producers. A function that is deleted and recreated, or that restarts from an earlier message, must not be confused with
the previous one: it would find the old state, and its outputs would be dropped as duplicates.
"""

from __future__ import annotations

from ..state.names import with_epoch
from ..wire.functions_pb2 import FunctionMetaData
from .spec import InstanceSpec


def table_of(metadata: FunctionMetaData) -> str:
    """Return the name of the function's state table.

    It contains the uuid of the function's creation: a recreated function finds none of the old state, however late an
    old instance still writes. It also contains the epoch of the state, so that an instance from before a state restore
    cannot change the restored state.
    """
    return with_epoch(_of_creation(metadata, ""), metadata.stateEpoch)


def lock_name(metadata: FunctionMetaData, instance_id: int) -> str:
    """Return the lock name of an instance."""
    return _of_creation(metadata, f":{instance_id}")


def _of_creation(metadata: FunctionMetaData, part: str) -> str:
    """Return the name of a part of the function, with the function's uuid if it has one."""
    details = metadata.functionDetails
    name = f"{details.tenant}/{details.namespace}/{details.name}{part}"
    return f"{name}@{metadata.functionUuid}" if metadata.functionUuid else name


def incarnation_of(metadata: FunctionMetaData) -> str:
    """Return the name of a function's incarnation, from its uuid and the number of cursor resets."""
    # Records of Pulsar's own worker have no uuid, but functions of the same name differ in creation time.
    return f"{metadata.functionUuid or metadata.createTime}/{metadata.cursorIncarnation}"


def producer_name(spec: InstanceSpec, partition: str) -> str:
    """Return the producer name for the results of an input partition."""
    return f"{spec.function_name}/{incarnation_of(spec.metadata)}/{partition}"
