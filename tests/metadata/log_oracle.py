"""The expected log of function changes, computed by a model independent of the managers.

The model folds every record that was ever written into a table of its own, by the strictest reading: a creation counts
only where nothing is, any other record only on the version right before its own. What does not count must be the echo
of a request that did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from magnetar.metadata.functions import FunctionRequest
from magnetar.wire.functions_pb2 import FunctionMetaData

from .simulated_broker import Record

State = tuple[int, bytes, int]
"""Version, record and time of creation of a function."""


@dataclass(frozen=True)
class Step:
    """A function's state after so many records of the log."""

    index: int
    state: State | None


@dataclass
class Call:
    """One request as its caller observed it.

    Attributes:
        request: what was asked.
        began: how many records the log had then.
        ended: how many it had when the answer came; None while there is none.
        refusal: why it was refused; None for success.
        trail: what happened to it, for whoever reads a failure.
    """

    request: FunctionRequest
    began: int
    ended: int | None = None
    refusal: str | None = None
    trail: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of the function."""
        details = self.request.metadata.functionDetails
        return f"{details.tenant}/{details.namespace}/{details.name}"


class Model:
    """The table that results from a log, and the history of each function."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.table: dict[str, State] = {}
        self.applied: dict[str, int] = {}
        self.unreadable = 0
        self.steps: dict[str, list[Step]] = defaultdict(lambda: [Step(0, None)])
        for index, record in enumerate(records, 1):
            self._take(index, record)

    def _take(self, index: int, record: Record) -> None:
        read = _read(record.key, record.value, record.properties)
        if read is None:
            self.unreadable += 1
            return
        key, state, version = read
        request_id = record.properties["requestId"]
        held = self.table.get(key)
        creates = held is None and state is not None and version == 0
        follows = held is not None and version == held[0] + 1 and (state is None or state[2] == held[2])
        if request_id in self.applied:
            assert not creates, f"record {index} creates {key} again by request {request_id}, which was applied before"
            assert held is None or version <= held[0], f"record {index} of {key} applies {request_id} a second time"
            return
        assert creates or follows, f"record {index} of {key} has version {version} on {held and held[0]}"
        self.applied[request_id] = index
        if state is None:
            del self.table[key]
        else:
            self.table[key] = state
        self.steps[key].append(Step(index, state))

    def check(self, call: Call) -> None:
        """Check that the log justifies the answer to a call."""
        assert call.ended is not None, f"no answer: {call}"
        request, version = call.request, call.request.metadata.version
        index = self.applied.get(request.request_id)
        seen = self._seen(call)
        if call.refusal is None:
            was_gone = request.is_deletion and any(state is None for state in seen)
            assert was_gone or index is not None, f"accepted and lost: {call}"
            assert index is None or index <= call.ended, f"answered before it was written: {call}"
            return
        assert index is None, f"refused, and yet applied by record {index}: {call}"
        created = request.metadata.createTime
        reasons = [state is None if version else state is not None for state in seen]
        reasons += [state is not None and (state[0] >= version or state[2] != created) for state in seen]
        assert any(reasons), f"refused without a reason: {call}, states {seen}"

    def check_seen(self, call: Call, shown: FunctionMetaData | None) -> None:
        """Check that a worker that reported success shows the result, or a later state."""
        index = self.applied.get(call.request.request_id)
        if index is None:
            return
        state = shown and (shown.version, shown.SerializeToString(deterministic=True), shown.createTime)
        since = [step.state for step in self.steps[call.key] if step.index >= index]
        assert state in since, f"answered, and not seen by who answers: {call}, shown {shown}"

    def _seen(self, call: Call) -> list[State | None]:
        """Return the states of the function during the call."""
        assert call.ended is not None
        steps = self.steps[call.key]
        before = [step for step in steps if step.index <= call.began][-1:]
        return [step.state for step in (*before, *(s for s in steps if call.began < s.index <= call.ended))]


def _read(key: str | None, value: bytes, properties: Mapping[str, str]) -> tuple[str, State | None, int] | None:
    if not key or "requestId" not in properties:
        return None  # nobody but the test's stranger writes such records
    if not value:
        return key, None, int(properties["version"])
    try:
        metadata = FunctionMetaData.FromString(value)
    except DecodeError:
        return None
    return (
        key,
        (metadata.version, metadata.SerializeToString(deterministic=True), metadata.createTime),
        metadata.version,
    )
