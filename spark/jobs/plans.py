"""Plans: the entries that a run reads and the producers of their outputs, stored before the run starts.

Design: the broker drops duplicate messages of a producer, so a repeated run must send the same entries under the same
producer names. A plan therefore assigns ranges of entries to names, and is stored in one key of the function's state
table. Plan n is stored before its job starts; afterwards the same key records that n is done, and the position reached
by each input. Every change is a compare-and-set that records the driver making it: a driver that takes over an
unfinished plan writes its own name, and the previous driver then sees a different version and stops. The subscription
follows: it is moved to the recorded position, repeatedly if needed.

Invariant: in each partition, the ranges of plan n + 1 follow those of plan n. The sequence ids of a slot therefore
increase from plan to plan, regardless of the number of slots.

Triggering a run returns its id before the run is planned, so the request is stored as well, in a second key. If the
worker dies or stops, the instance that takes over continues the run under the same id, for which clients may be
waiting. A failed run is not continued, because its failure was reported; nor is a run of a function that was changed or
stopped meanwhile, whose record version has changed.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import BadVersion, MagnetarError, ProtocolError
from ...instance.identity import incarnation_of, table_of
from ...instance.spec import InstanceSpec
from ...state.client import TableClient
from ...wire.position import Position
from ..source.ranges import Span, TopicRange
from ..source.ranges import plan as cut
from .retries import with_retries

KEY = b"__spark_plan__"
REQUEST_KEY = b"__spark_run__"
ATTEMPTS_MAX = 6
"""Maximum number of starts of a run, so that a run that crashes its worker is not retried forever."""
ENTRIES_PER_TASK = 1_000
"""Large enough to outweigh the cost of starting a task, and small enough to make progress visible."""
TASKS_MAX = 1_000
"""Default maximum number of tasks of a run."""


RESET_REMEDY = "use functions reset-cursor to start from the entries that still exist"
"""Remedy for planned entries that no longer exist."""


class RunFenced(MagnetarError):
    """Another driver has taken over the function."""


@dataclass(frozen=True, slots=True)
class Task:
    """A range of entries and the producer of their outputs.

    Attributes:
        slot: number that, together with the topic, determines the name of the task's producer.
        wanted: range to read.
    """

    slot: int
    wanted: TopicRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The tasks of one run.

    Attributes:
        number: plan number; the first plan of a function is 1.
        run_id: id of the run that the plan was created for.
        tasks: ranges to read, in order.
        outputs: number of partitions of the output topic; 0 without an output topic or partitions.
        shuffles: number of Spark's shuffle partitions.
    """

    number: int
    run_id: str
    tasks: tuple[Task, ...]
    outputs: int = 0
    shuffles: int = 0

    @property
    def ends(self) -> dict[str, Position]:
        """Last entry to read of each topic."""
        ends: dict[str, Position] = {}
        for task in self.tasks:
            ends[task.wanted.topic] = max(task.wanted.end, ends.get(task.wanted.topic, task.wanted.end))
        return ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Value of the key: a plan and whether it is done.

    Attributes:
        incarnation: the function's incarnation; records of earlier incarnations are void.
        owner: the driver that wrote it.
        plan: latest plan, or None before the first plan of this incarnation.
        is_done: whether the outputs of the plan are stored.
        ends: positions reached by finished plans, keyed by topic.
    """

    incarnation: str
    owner: str
    plan: Plan | None = None
    is_done: bool = True
    ends: Mapping[str, Position] = field(default_factory=dict)

    @property
    def open_plan(self) -> Plan | None:
        """The plan if it is not done, otherwise None."""
        return None if self.is_done else self.plan


def make_tasks(
    backlog: Sequence[TopicRange], *, cores: int, min_tasks: int | None, is_ordered: bool
) -> tuple[Task, ...]:
    """Split a backlog into tasks.

    Args:
        backlog: one range for each topic that has entries.
        cores: number of tasks that can run concurrently.
        min_tasks: minimum set by the user, or None.
        is_ordered: whether to create one task per topic, to preserve its order.
    """
    if not backlog:
        return ()
    if is_ordered:
        ranges = list(backlog)
    elif min_tasks is not None:
        ranges = cut(backlog, min_tasks)
    else:
        entries = sum(whole.entries for whole in backlog)
        ranges = cut(backlog, min(max(2 * cores, -(-entries // ENTRIES_PER_TASK)), TASKS_MAX))
    slots: dict[str, int] = {}
    tasks = []
    for wanted in ranges:
        slot = slots[wanted.topic] = slots.get(wanted.topic, -1) + 1
        tasks.append(Task(slot, wanted))
    return tuple(tasks)


def encode(record: Record) -> bytes:
    """Encode a record for its key."""
    plan = record.plan
    content: dict[str, Any] = {
        "format": 1,
        "life": record.incarnation,
        "owner": record.owner,
        "done": record.is_done,
        "ends": dict(record.ends),
    }
    if plan is not None:
        content["plan"] = {
            "number": plan.number,
            "run": plan.run_id,
            "outputs": plan.outputs,
            "shuffles": plan.shuffles,
            "tasks": [[task.slot, task.wanted.topic, task.wanted.spans] for task in plan.tasks],
        }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode())


def decode(data: bytes) -> Record:
    """Decode a record encoded by `encode`.

    Raises:
        ProtocolError: the record is invalid.
    """
    try:
        content = json.loads(zlib.decompress(data))
        if content["format"] != 1:
            raise ValueError(f"format {content['format']}")
        plan = None
        if (given := content.get("plan")) is not None:
            plan = Plan(
                number=given["number"],
                run_id=given["run"],
                outputs=given["outputs"],
                shuffles=given["shuffles"],
                tasks=tuple(
                    Task(slot, TopicRange(topic, tuple(Span(*span) for span in spans)))
                    for slot, topic, spans in given["tasks"]
                ),
            )
        ends = {topic: Position(*end) for topic, end in content["ends"].items()}
        return Record(
            incarnation=content["life"], owner=content["owner"], plan=plan, is_done=content["done"], ends=ends
        )
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise ProtocolError(
            f"key {KEY.decode()} of the function's state is not a plan that this version can read "
            f"({error}): finish the run with the version that started it, or delete and recreate the function"
        ) from error


def _is_newer(incarnation: str, than: str) -> bool:
    """Return whether an incarnation started with a later cursor reset of the same function."""
    function, _, reset = incarnation.rpartition("/")
    other, _, other_reset = than.rpartition("/")
    return function == other and reset.isdigit() and other_reset.isdigit() and int(reset) > int(other_reset)


class PlanStore:
    """The plan key of one function, changed by compare-and-set. Blocking; not thread-safe, except `is_fenced`.

    Attributes:
        record: stored record, if it belongs to this incarnation of the function.
    """

    def __init__(self, client: TableClient, table: str, *, incarnation: str, owner: str) -> None:
        """Create the store; call `load` before other methods.

        Args:
            client: client of the state store.
            table: state table of the function.
            incarnation: incarnation of the function.
            owner: unique name of this driver.
        """
        self._client = client
        self._table = table
        self._owner = owner
        self._version = 0
        self._last_number = 0
        self.record = Record(incarnation=incarnation, owner=owner)

    @property
    def next_number(self) -> int:
        """Number of the next plan; numbers continue across incarnations."""
        return self._last_number + 1

    def load(self) -> Record:
        """Read the key and take over an unfinished plan of another driver.

        Raises:
            RunFenced: another driver took it over concurrently, or the function has a newer incarnation.
            StateStoreUnavailable, StateStoreFailed: the key cannot be read or written.
        """
        if self.claim().open_plan is not None:
            # Writing our name changes the key's version: the previous driver fails at its next compare-and-set.
            self._put(replace(self.record, owner=self._owner))
        return self.record

    def claim(self) -> Record:
        """Read the key and void the record of an earlier incarnation, whose driver may still be running.

        Raises: same as `load`.
        """
        version, data = with_retries(self._read)
        if data is None:
            return self.record
        self._version = version
        found = decode(data)
        if found.plan is not None:
            self._last_number = found.plan.number
        if found.incarnation == self.record.incarnation:
            self.record = found
        elif _is_newer(found.incarnation, self.record.incarnation):
            raise RunFenced(
                f"the function's cursors were reset and driver {found.owner} has started over; this driver is stopping"
            )
        else:
            # The plan is kept only for its number, which is part of producer names that must not be reused.
            self._put(replace(self.record, plan=found.plan))
        return self.record

    def begin(self, plan: Plan) -> None:
        """Store the plan to run next.

        Raises:
            RunFenced: another driver stored a plan.
            StateStoreUnavailable, StateStoreFailed, StateRefused: the plan cannot be stored.
        """
        assert self.record.is_done
        assert plan.number == self.next_number
        self._put(replace(self.record, owner=self._owner, plan=plan, is_done=False))
        self._last_number = plan.number

    def correct(self, plan: Plan) -> None:
        """Replace the unfinished plan.

        Raises: same as `begin`.
        """
        assert self.record.open_plan is not None
        self._put(replace(self.record, plan=plan))

    def finish(self) -> None:
        """Mark the plan as done, and store the position reached by each input.

        Raises: same as `begin`.
        """
        plan = self.record.open_plan
        assert plan is not None
        ends = {**self.record.ends, **plan.ends}
        self._put(replace(self.record, owner=self._owner, is_done=True, ends=ends))

    def is_fenced(self) -> bool:
        """Return whether another driver has changed the key; False if that cannot be determined at the moment."""
        try:
            return self._read()[0] != self._version
        except MagnetarError:
            return False  # if the store is unavailable, finishing the plan will fail

    def check(self) -> None:
        """Check that no other driver has changed the key.

        Raises:
            RunFenced: another driver has changed it.
            StateStoreUnavailable, StateStoreFailed: the key cannot be read.
        """
        version, data = with_retries(self._read)
        if version != self._version:
            raise self._fenced(data)

    def _read(self) -> tuple[int, bytes | None]:
        """Return the version and content of the key, or 0 and None if it is missing."""
        [value] = self._client.read(self._table, [KEY])
        return (0, None) if value is None else (value.version, value.data)

    def _put(self, record: Record) -> None:
        data = encode(record)

        def put() -> int:
            try:
                return self._client.put(self._table, KEY, data, self._version)
            except BadVersion:
                # Either our own change, whose response was lost, or another driver's.
                version, stored = self._read()
                if stored == data:
                    return version
                raise self._fenced(stored) from None

        self._version = with_retries(put)
        self.record = record

    def _fenced(self, data: bytes | None) -> RunFenced:
        other = f"driver {decode(data).owner}" if data is not None else "deletion of the function"
        return RunFenced(f"{other} has taken over the function from driver {self._owner}; this run has ended")


class RunRequest:
    """The run request of one function, stored in a key of its state table. Blocking; not thread-safe.

    Attributes:
        started_ms: time of the stored run's first start.
        due_ms: time of the trigger that started the run, 0 for none.
    """

    def __init__(self, client: TableClient, spec: InstanceSpec) -> None:
        """Create the request without reading the key."""
        metadata = spec.metadata
        self._client = client
        self._table = table_of(metadata)
        self._incarnation = f"{incarnation_of(metadata)} version {metadata.version}"
        self._version = 0
        self.started_ms = self.due_ms = 0

    def find(self) -> str:
        """Return the id of a started but unfinished run, or an empty string.

        Raises:
            MagnetarError: the store does not answer.
        """
        run_id, attempts, _, _ = self._read()
        return run_id if attempts < ATTEMPTS_MAX else ""

    def due(self) -> int:
        """Return the trigger time of the unfinished run, 0 for none.

        Raises: same as `find`.
        """
        return self._read()[3]

    def note(self, run_id: str, started_ms: int = 0, due_ms: int = 0) -> None:
        """Store the start of a run.

        Args:
            run_id: id of the run.
            started_ms: start time; ignored if the run was started before.
            due_ms: time of the trigger that started the run, 0 for none; ignored if the run was started before.

        Raises:
            MagnetarError: the request cannot be stored.
        """
        before, attempts, started_before_ms, due_before_ms = with_retries(self._read)
        if before != run_id:
            attempts = started_before_ms = due_before_ms = 0
        self.started_ms, self.due_ms = started_before_ms or started_ms, due_before_ms or due_ms
        content = {
            "run": run_id, "life": self._incarnation, "attempts": attempts + 1, "started": self.started_ms,
            "due": self.due_ms,
        }  # fmt: skip
        data = json.dumps(content, separators=(",", ":")).encode()
        self._version = with_retries(lambda: self._client.put(self._table, REQUEST_KEY, data))

    def give_up(self, run_id: str) -> None:
        """Mark another driver's run as ended, if it is still the stored run."""
        [value] = self._client.read(self._table, [REQUEST_KEY])
        if value is not None and value.data and json.loads(value.data)["run"] == run_id:
            self._version = value.version
            self.forget()

    def forget(self) -> None:
        """Mark the run as ended, unless another run has started; do nothing if the store is unavailable."""
        with contextlib.suppress(BadVersion, MagnetarError):
            self._client.put(self._table, REQUEST_KEY, b"", self._version)

    def _read(self) -> tuple[str, int, int, int]:
        """Return the id, attempts, first start and trigger time of the stored run, all empty without a stored run."""
        [value] = self._client.read(self._table, [REQUEST_KEY])
        if value is None or not value.data:
            return "", 0, 0, 0
        content = json.loads(value.data)
        if content["life"] != self._incarnation:
            return "", 0, 0, 0
        return content["run"], content["attempts"], content.get("started", 0), content.get("due", 0)
