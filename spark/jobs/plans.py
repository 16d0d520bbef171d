"""Plans: which entries a run reads, and which producer writes their outputs; stored before anything runs.

Design: the broker drops messages that it already has from a producer, so a repeated run must send the same entries
under the same names. A plan therefore assigns ranges of entries to names, and is one key of the function's state table.
Plan n is stored before its job begins; afterwards the same key says that n is done, and which position each input
reached. Every change names the version that it changes (compare-and-set) and the driver that makes it: a driver that
takes over an unfinished plan writes its own name to it, and the previous one finds another version there and stops. The
subscription only follows: it is moved to the position in the key, as often as needed.

Invariant: the ranges of plan n + 1 come after those of plan n, partition by partition. So the sequence ids of a slot
increase from plan to plan, however many slots a plan has.

A triggered run returns its id before it is planned. So the request itself is stored too, as a key beside the plan's: a
worker that dies or stops leaves it there, and the instance that takes over continues under the same id, which clients
may be waiting for. A failed run is over, because its end was reported; so is a run of a function that was changed or
stopped meanwhile, which has a new record version.
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
"""Starts of one run: a run that ends its worker each time is not retried further until it is triggered again."""
ENTRIES_PER_TASK = 1_000
"""Enough that the start of a task is comparatively cheap, and few enough that progress is visible."""
TASKS_MAX = 1_000
"""Maximum number of tasks of a run, unless configured."""


RESET_REMEDY = "functions reset-cursor lets the function begin with what there is"
"""What users of a function can do about planned entries that no longer exist."""


class RunFenced(MagnetarError):
    """Another driver has taken over the function."""


@dataclass(frozen=True, slots=True)
class Task:
    """A range of entries, and the producer of their outputs.

    Attributes:
        slot: determines, with the topic, the name of the task's producer.
        wanted: range to read.
    """

    slot: int
    wanted: TopicRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The tasks of one run.

    Attributes:
        number: plan number; the first plan of a function is 1.
        run_id: run that it was made for.
        tasks: ranges to read, in order.
        outputs: partitions of the output topic; 0 if it is not partitioned or absent.
        shuffles: number of Spark's shuffle partitions.
    """

    number: int
    run_id: str
    tasks: tuple[Task, ...]
    outputs: int = 0
    shuffles: int = 0

    @property
    def ends(self) -> dict[str, Position]:
        """The last entry of each topic that is read."""
        ends: dict[str, Position] = {}
        for task in self.tasks:
            ends[task.wanted.topic] = max(task.wanted.end, ends.get(task.wanted.topic, task.wanted.end))
        return ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The value of the key: a plan, and whether it is done.

    Attributes:
        incarnation: the function's incarnation; records of an earlier one are void.
        owner: the driver that wrote it.
        plan: the latest plan; None before the first of this incarnation.
        is_done: whether its outputs are stored.
        ends: positions reached by finished plans, by topic.
    """

    incarnation: str
    owner: str
    plan: Plan | None = None
    is_done: bool = True
    ends: Mapping[str, Position] = field(default_factory=dict)

    @property
    def open_plan(self) -> Plan | None:
        """The plan if it is not done, or None."""
        return None if self.is_done else self.plan


def make_tasks(
    backlog: Sequence[TopicRange], *, cores: int, min_tasks: int | None, is_ordered: bool
) -> tuple[Task, ...]:
    """Split a backlog into tasks.

    Args:
        backlog: one range for each topic that has entries.
        cores: number of tasks that can run at a time.
        min_tasks: minimum set by the user, or None.
        is_ordered: make each topic one task, which keeps its order.
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
        ProtocolError: it is invalid.
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
            f"key {KEY.decode()} of the function's state is not a plan of this version ({error}): finish the run with"
            " the version that began it, or delete and recreate the function"
        ) from error


def _is_newer(incarnation: str, than: str) -> bool:
    """Return whether an incarnation began with a later cursor reset of the same function."""
    function, _, reset = incarnation.rpartition("/")
    other, _, other_reset = than.rpartition("/")
    return function == other and reset.isdigit() and other_reset.isdigit() and int(reset) > int(other_reset)


class PlanStore:
    """The plan key of one function, changed by compare-and-set; blocking, for one thread (except `is_fenced`).

    Attributes:
        record: stored record, as far as it belongs to this incarnation of the function.
    """

    def __init__(self, client: TableClient, table: str, *, incarnation: str, owner: str) -> None:
        """Prepare; call `load` first.

        Args:
            client: client of the state store.
            table: table of the function.
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
        """Number of the next plan; numbers continue over the incarnations of a function."""
        return self._last_number + 1

    def load(self) -> Record:
        """Read the key, and take over an unfinished plan of another driver.

        Raises:
            RunFenced: another driver did so at the same moment, or the function has a newer incarnation.
            StateStoreUnavailable, StateStoreFailed: it cannot be read or written.
        """
        if self.claim().open_plan is not None:
            # Writing our name changes the key's version: the previous driver fails at its next compare-and-set.
            self._put(replace(self.record, owner=self._owner))
        return self.record

    def claim(self) -> Record:
        """Read the key, and void the record of an earlier incarnation of the function, whose driver may still run.

        Raises: as `load`.
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
                f"the function's cursors were reset, and driver {found.owner} has started over: this driver ends"
            )
        else:
            # The plan only stays for its number: producers are named after it, and names must not be reused.
            self._put(replace(self.record, plan=found.plan))
        return self.record

    def begin(self, plan: Plan) -> None:
        """Store a plan to be run next.

        Raises:
            RunFenced: another driver stored one.
            StateStoreUnavailable, StateStoreFailed, StateRefused: it cannot be stored.
        """
        assert self.record.is_done
        assert plan.number == self.next_number
        self._put(replace(self.record, owner=self._owner, plan=plan, is_done=False))
        self._last_number = plan.number

    def correct(self, plan: Plan) -> None:
        """Replace the unfinished plan.

        Raises: as `begin`.
        """
        assert self.record.open_plan is not None
        self._put(replace(self.record, plan=plan))

    def finish(self) -> None:
        """Store that the plan is done, and the position reached by each input.

        Raises: as `begin`.
        """
        plan = self.record.open_plan
        assert plan is not None
        ends = {**self.record.ends, **plan.ends}
        self._put(replace(self.record, owner=self._owner, is_done=True, ends=ends))

    def is_fenced(self) -> bool:
        """Return whether another driver has changed the key meanwhile; False if that cannot be determined now."""
        try:
            return self._read()[0] != self._version
        except MagnetarError:
            return False  # if the store is unavailable, finishing the plan will fail

    def check(self) -> None:
        """Check that no other driver has changed the key.

        Raises:
            RunFenced: another driver has.
            StateStoreUnavailable, StateStoreFailed: that cannot be determined.
        """
        version, data = with_retries(self._read)
        if version != self._version:
            raise self._fenced(data)

    def _read(self) -> tuple[int, bytes | None]:
        """Return version and content of the key; 0 and None if it is missing."""
        [value] = self._client.read(self._table, [KEY])
        return (0, None) if value is None else (value.version, value.data)

    def _put(self, record: Record) -> None:
        data = encode(record)

        def put() -> int:
            try:
                return self._client.put(self._table, KEY, data, self._version)
            except BadVersion:
                # Our own change, whose answer was lost, or another driver's.
                version, stored = self._read()
                if stored == data:
                    return version
                raise self._fenced(stored) from None

        self._version = with_retries(put)
        self.record = record

    def _fenced(self, data: bytes | None) -> RunFenced:
        other = f"driver {decode(data).owner}" if data is not None else "a deletion of the function"
        return RunFenced(
            f"{other} has taken the function over from driver {self._owner}; this run ends here, that one goes on"
        )


class RunRequest:
    """The run request of one function, a key of its state table; blocking, for one thread.

    Attributes:
        started_ms: first start of the stored run.
        due_ms: time of the trigger that it serves, 0 for none.
    """

    def __init__(self, client: TableClient, spec: InstanceSpec) -> None:
        """Prepare."""
        metadata = spec.metadata
        self._client = client
        self._table = table_of(metadata)
        self._incarnation = f"{incarnation_of(metadata)} version {metadata.version}"
        self._version = 0
        self.started_ms = self.due_ms = 0

    def find(self) -> str:
        """Return the id of a run that has begun and not ended, or an empty text.

        Raises:
            MagnetarError: the store does not answer.
        """
        run_id, attempts, _, _ = self._read()
        return run_id if attempts < ATTEMPTS_MAX else ""

    def due(self) -> int:
        """Return the trigger time of the unfinished run, 0 for none.

        Raises: as `find`.
        """
        return self._read()[3]

    def note(self, run_id: str, started_ms: int = 0, due_ms: int = 0) -> None:
        """Store that a run begins.

        Args:
            run_id: id of the run.
            started_ms: start time; for a restarted run the first one is kept.
            due_ms: time of the trigger that it serves, 0 for none; kept likewise.

        Raises:
            MagnetarError: it cannot be stored.
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
        """Store that a run stored by another driver has ended, if it is still the stored one."""
        [value] = self._client.read(self._table, [REQUEST_KEY])
        if value is not None and value.data and json.loads(value.data)["run"] == run_id:
            self._version = value.version
            self.forget()

    def forget(self) -> None:
        """Store that the run has ended, unless another one has begun; does nothing if the store is unavailable."""
        with contextlib.suppress(BadVersion, MagnetarError):
            self._client.put(self._table, REQUEST_KEY, b"", self._version)

    def _read(self) -> tuple[str, int, int, int]:
        """Return id, attempts, first start and due time of the stored run, all empty without one."""
        [value] = self._client.read(self._table, [REQUEST_KEY])
        if value is None or not value.data:
            return "", 0, 0, 0
        content = json.loads(value.data)
        if content["life"] != self._incarnation:
            return "", 0, 0, 0
        return content["run"], content["attempts"], content.get("started", 0), content.get("due", 0)
