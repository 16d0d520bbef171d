"""The ``kafka`` source reads records from an Apache Kafka topic.

The instances of a source are members of one consumer group, and Kafka distributes the partitions among them. The order
within a partition is preserved. With ``partition``, one instance reads one partition without a group.

The position is the next offset of each partition. It is stored with the source, and committed to the group once records
are durable. Tools use the group's offsets to show lag, and other instances continue from them. After a change of
parallelism, each instance receives the positions of all previous instances.

If the group's offset was set from outside (by an operator with ``kafka-consumer-groups.sh``, or by an earlier
consumer), the source adopts it. The source recognises its own commits by their metadata. When it adopts an offset, it
commits that offset with a new mark in the metadata. Positions with another mark are obsolete, so an operator can set
the same offset several times. A topic that was deleted and recreated is read from the start.

Members remain in the group for sessionTimeoutMs after they have stopped, so that a restart moves no partitions.
Operators can set the group's offset after that time.
"""

from __future__ import annotations

import base64
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from ..api.connector import Position, Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig, MagnetarError
from .kafka import (
    ASK_S,
    BASE64_KEY,
    BASE64_NAMES,
    Connection,
    KafkaConfig,
    cause_of,
    check_properties,
    library,
    properties_of,
)

READ_MAX = 2000
"""Maximum number of records returned by one `read`."""
_WAIT_S = 0.3
_PROBE_S = 1.0
_OURS = "magnetar"
"""Metadata of the offsets committed by this source."""
_NUMBERED = ("offsets", "marks", "taken")
"""Position fields with an entry for each partition."""
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
_JAVA = "org.apache.kafka.common.serialization."
_PROPERTIES = "consumerConfigProperties"
_REFUSED = {
    "enable.auto.commit": "set autoCommitEnabled instead",
    "auto.commit.interval.ms": "set autoCommitIntervalMs instead",
    "auto.offset.reset": "set autoOffsetReset instead",
    "key.deserializer": "set keyDeserializationClass instead",
    "value.deserializer": "set valueDeserializationClass instead",
    "max.poll.records": f"the connector reads at most {READ_MAX} records at a time",
    "group.instance.id": "the connector sets a separate ID for each instance",
    "enable.partition.eof": "the connector does not use the end of a partition",
}
_WINS = frozenset(
    ("bootstrap.servers", "group.id", "fetch.min.bytes", "session.timeout.ms", "heartbeat.interval.ms")
)  # fmt: skip
"""Properties with a separate option, which takes precedence, as in Pulsar."""


@dataclass(kw_only=True)
class KafkaSourceConfig(KafkaConfig):
    """Settings of the ``kafka`` source."""

    group_id: str = option("Consumer group whose members share the partitions.")
    partition: int = option(
        "Partition to read without the group, in the same order each time, as required for EFFECTIVELY_ONCE; -1 to "
        "read the partitions assigned by the group.",
        default=-1,
        limits=(-1, None),
    )
    fetch_min_bytes: int = option(
        "Minimum bytes to accumulate before a broker responds.", default=1, limits=(1, 100_000_000)
    )
    auto_commit_enabled: bool = option(
        "Whether to commit the offsets of durable records every autoCommitIntervalMs instead of immediately.",
        default=True,
    )
    auto_commit_interval_ms: int = option(
        "Interval between commits in milliseconds.", default=5000, limits=(1, 86_400_000)
    )  # fmt: skip
    session_timeout_ms: int = option(
        "Milliseconds without a heartbeat after which a member is removed from the group.",
        default=30_000,
        limits=(1, 3_600_000),
    )
    heartbeat_interval_ms: int = option(
        "Interval between heartbeats in milliseconds.", default=3000, limits=(1, 3_600_000)
    )
    auto_offset_reset: Literal["earliest", "latest", "none"] = option(
        "Where to start without an offset, or with an offset that Kafka no longer has; none: fail with an error.",
        default="earliest",
    )
    key_deserialization_class: str = option(
        "StringDeserializer: keys are UTF-8 strings, or base64 with the property __kafka_base64_key if they are not "
        "valid UTF-8; ByteArrayDeserializer: keys are always base64.",
        default=f"{_JAVA}StringDeserializer",
    )
    value_deserialization_class: str = option(
        "ByteArrayDeserializer or StringDeserializer. Both leave the bytes unchanged; for other formats use a SerDe.",
        default=f"{_JAVA}ByteArrayDeserializer",
    )
    consumer_config_properties: dict[str, Any] = option(
        "Additional consumer settings, by librdkafka name.", default={}
    )  # fmt: skip
    copy_headers_enabled: bool = option(
        "Whether to copy headers to record properties, and add __kafka_topic, __kafka_partition and __kafka_offset.",
        default=False,
    )


@dataclass(slots=True, eq=False)
class _Read:
    """Next offsets after the records of one `read`."""

    offsets: Mapping[int, int]
    is_durable: bool = False


@dataclass(slots=True)
class _Stand:
    """Position of the source.

    Attributes:
        topic_id: ID of the topic that the offsets belong to.
        offsets: next offsets, by partition.
        marks: mark of the last adopted group offset that precedes these offsets, by partition.
        taken: adopted group offsets stored by earlier versions without a mark, by partition; each is used once.
    """

    topic_id: str = ""
    offsets: dict[int, int] = field(default_factory=dict)
    marks: dict[int, str] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, position: Any) -> _Stand:
        """Create a position from its stored form."""
        offsets, marks, taken = ({int(n): at for n, at in position.get(k, {}).items()} for k in _NUMBERED)
        return cls(position["topicId"], offsets, marks, taken)

    def position(self) -> dict[str, Any]:
        """Return the position to store."""
        return {"topicId": self.topic_id} | {name: dict(getattr(self, name)) for name in _NUMBERED}

    def metadata(self, partition: int) -> str:
        """Return the metadata for commits of a partition."""
        mark = self.marks.get(partition)
        return f"{_OURS} {mark}" if mark else _OURS

    def join(self, other: _Stand) -> None:
        """Merge the offsets of another instance.

        If the marks of two offsets differ, it is unknown which is newer. The smaller offset is kept, so that no record
        is lost. If the group has an offset, its mark decides later.
        """
        for partition, offset in other.offsets.items():
            known, mark = self.offsets.get(partition), other.marks.get(partition, "")
            is_same = self.marks.get(partition, "") == mark
            if known is None or (offset > known if is_same else offset < known):
                self.offsets[partition], self.marks[partition] = offset, mark
                self.taken.pop(partition, None)
                if partition in other.taken:
                    self.taken[partition] = other.taken[partition]


class KafkaSource(Source):
    """Reads records from an Apache Kafka topic, as a member of a group or from one partition."""

    config = KafkaSourceConfig

    def __init__(self) -> None:
        """Create a source without a position. The position is kept when the source is reopened."""
        self._stand: _Stand | None = None
        self._consumer: Any = None

    def check(self, config: KafkaSourceConfig) -> None:
        """Validate the configuration."""
        config.check_connection()
        if not config.group_id:
            raise InvalidConfig("groupId must not be empty")
        if config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise InvalidConfig("heartbeatIntervalMs must be less than sessionTimeoutMs: set it to at most a third")
        for key, given in (
            ("keyDeserializationClass", config.key_deserialization_class),
            ("valueDeserializationClass", config.value_deserialization_class),
        ):
            if given.removeprefix(_JAVA) not in ("StringDeserializer", "ByteArrayDeserializer"):
                raise InvalidConfig(
                    f"unsupported {key} {given!r}: use StringDeserializer or ByteArrayDeserializer, with a SerDe or "
                    f"transform function if needed"
                )
        check_properties(_PROPERTIES, "Consumer", self._properties(config))

    def not_effectively_once(self, config: KafkaSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.partition >= 0:
            return ""
        return (
            "the order of records from several partitions varies: create a source for each partition, and set partition"
        )

    def not_parallel(self, config: KafkaSourceConfig) -> str:
        """Return why only one instance can run, or an empty string."""
        return "a source with partition set has a single reader" if config.partition >= 0 else ""

    @staticmethod
    def _properties(config: KafkaSourceConfig) -> dict[str, str]:
        found = properties_of(_PROPERTIES, config.consumer_config_properties, _REFUSED)
        return {name: value for name, value in found.items() if name not in _WINS}

    def open(self, config: KafkaSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        kafka = self._kafka = library()
        self._config = config
        self._log = context.logger
        self._is_exact = context.is_exact
        self._connection = Connection(config, context.logger)
        self._reads: deque[_Read] = deque()
        self._keeps_text = config.key_deserialization_class.endswith("StringDeserializer")
        self._error: Any = None
        topic = self._connection.describe(kafka)
        self._stand = self._found_again(topic.id, context.position)
        settings = {
            "fetch.queue.backoff.ms": 10,  # default: one second without fetching
            "queued.max.messages.kbytes": 32_768,
            "max.poll.interval.ms": max(300_000, config.session_timeout_ms),
            **self._properties(config),
            **config.connection(),
            "group.id": config.group_id,
            # Static membership: a restarted instance immediately replaces its killed predecessor.
            "group.instance.id": f"{context.name}-{context.instance_id}",
            "fetch.min.bytes": config.fetch_min_bytes,
            "session.timeout.ms": config.session_timeout_ms,
            "heartbeat.interval.ms": config.heartbeat_interval_ms,
            "auto.offset.reset": {"none": "error"}.get(config.auto_offset_reset, config.auto_offset_reset),
            "enable.auto.commit": config.auto_commit_enabled and config.partition < 0,
            "auto.commit.interval.ms": config.auto_commit_interval_ms,
            "enable.auto.offset.store": False,
            "partition.assignment.strategy": "range,roundrobin",
            "error_cb": self._connection.failed,
        }
        try:
            self._consumer = kafka.Consumer(settings)
            if config.partition < 0:
                self._consumer.subscribe([config.topic], on_assign=self._assigned)
                return
            if config.partition >= topic.partitions:
                raise InvalidConfig(
                    f"invalid partition {config.partition}: topic {config.topic!r} has partitions 0 to "
                    f"{topic.partitions - 1}"
                )
            if topic.is_compacted and self._is_exact:
                raise InvalidConfig(
                    f"topic {config.topic!r} is compacted: EFFECTIVELY_ONCE requires that all records can be reread"
                )
            self._assigned(self._consumer, [kafka.TopicPartition(config.topic, config.partition)])
        except kafka.KafkaException as error:
            code = error.args[0].code()
            if code in (kafka.KafkaError._INVALID_ARG, kafka.KafkaError._SSL):
                raise InvalidConfig(cause_of(error)) from error
            raise self._connection.away(error) from error

    def _found_again(self, topic_id: str, position: Any) -> _Stand:
        stand = self._stand
        if stand is None and position:
            stand = _Stand.of(position)
        if stand is None:
            return _Stand(topic_id)
        if stand.topic_id == topic_id or not (stand.topic_id and topic_id):
            return stand
        if self._is_exact:
            raise MagnetarError(
                f"topic {self._config.topic!r} was deleted and recreated: delete and recreate the source to read it"
            )
        self._log.warning("topic %s was deleted and recreated; reading it from the start", self._config.topic)
        return _Stand(topic_id)

    # -- partitions -------------------------------------------------------------------------------------------------

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Start reading partitions at their positions; called by `consume`, or once with `partition`."""
        config, stand = self._config, self._stand
        assert stand is not None
        begins, taken = [], []
        committed = consumer.committed(list(partitions), timeout=ASK_S)
        for one in committed:
            if one.error is not None:
                raise self._connection.away(cause_of(Exception(one.error)))
            mark = stand.marks.get(one.partition)
            start = self._start(stand, one)
            is_taken = config.partition < 0 and stand.marks.get(one.partition) != mark
            low, high = consumer.get_watermark_offsets(one, timeout=ASK_S)
            if start is None or not low <= start <= high:
                start = self._reset(one.partition, start, low, high)
                stand.offsets[one.partition] = start
            begins.append(self._kafka.TopicPartition(config.topic, one.partition, start, stand.metadata(one.partition)))
            if is_taken:
                taken.append(begins[-1])
        if taken:
            consumer.commit(offsets=taken, asynchronous=False)  # from now on, any other offset was set from outside
        consumer.assign(begins)
        self._log.info(
            "reading %s", ", ".join(f"partition {at.partition} from {at.offset}" for at in begins) or "no partitions"
        )
        if config.auto_offset_reset == "latest" and begins and config.partition < 0:
            consumer.commit(
                offsets=begins, asynchronous=True
            )  # records that arrive from now on are read even after a stop

    def _start(self, stand: _Stand, committed: Any) -> int | None:
        """Return the start offset of a partition, or None if unknown."""
        number: int = committed.partition
        known = stand.offsets.get(number)
        offset: int = committed.offset
        if offset < 0 or (self._config.partition >= 0 and known is not None):
            return known
        taken_before = stand.taken.pop(number, None)
        owner, _, mark = (committed.metadata or "").partition(" ")
        if owner != _OURS:
            if taken_before == offset and known is not None:
                stand.marks[number] = secrets.token_hex(4)  # commits our offset, so that this one is used only once
                return known
            mark = secrets.token_hex(4)
        elif mark == stand.marks.get(number, ""):
            return offset if known is None else max(offset, known)
        stand.marks[number], stand.offsets[number] = mark, offset
        return offset

    def _reset(self, partition: int, start: int | None, low: int, high: int) -> int:
        """Return the start offset of a partition whose offset is unknown or out of range."""
        policy = self._config.auto_offset_reset
        what = f"partition {partition} of topic {self._config.topic}"
        if start is not None:
            lost = f"offset {start} of {what} is out of range {low} to {high}"
            if policy == "none" or self._is_exact:
                raise MagnetarError(f"{lost}, and records may be lost: delete and recreate the source to continue")
            self._log.error("%s: records may be lost; continuing with autoOffsetReset %s", lost, policy)
        elif policy == "none":
            raise MagnetarError(
                f"group {self._config.group_id!r} has no offset for {what}, and autoOffsetReset is none"
            )
        return high if policy == "latest" else low

    # -- records ----------------------------------------------------------------------------------------------------

    def read(self) -> Sequence[Record] | None:
        """Return the next records, or None if none are available yet."""
        kafka = self._kafka
        try:
            # `consume` waits for the requested number of records: first request one, then those already fetched.
            messages = [] if self._error is not None else self._consumer.consume(1, _WAIT_S)
            if not messages:
                self._look_after()
                return None
            messages += self._consumer.consume(READ_MAX - 1, 0)
        except kafka.KafkaException as error:
            raise self._connection.away(error) from error
        records, offsets = self._records(messages)
        if not records:
            return None
        self._connection.forget()
        assert self._stand is not None
        self._stand.offsets.update(offsets)
        read = _Read(offsets)
        self._reads.append(read)
        records[-1].acknowledge = partial(self._durable, read)
        return records

    def _records(self, messages: Sequence[Any]) -> tuple[list[Record], dict[int, int]]:
        """Convert messages to records, and return each partition's next offset. An error is saved and raised later."""
        records: list[Record] = []
        offsets: dict[int, int] = {}
        current, name, last = -1, "", None
        has_headers = self._config.copy_headers_enabled
        for message in messages:
            if message.error() is not None:
                self._error = message.error()
                continue
            if (partition := message.partition()) != current:
                if last is not None:
                    offsets[current] = last.offset() + 1
                current, name = partition, str(partition)
            last = message
            kind, time_ms = message.timestamp()
            if not kind or time_ms < 0:
                time_ms = 0
            key = message.key()
            if key is None and not has_headers:
                records.append(Record(message.value(), None, _NO_PROPERTIES, time_ms, "", "", name))
                continue
            properties = self._headers(message) if has_headers else {}
            text = None if key is None else self._key(key, properties)
            records.append(Record(message.value(), text, properties, time_ms, "", "", name))
        if last is not None:
            offsets[current] = last.offset() + 1
        return records, offsets

    def _key(self, key: bytes, properties: dict[str, str]) -> str:
        """Return a key as a string. Other bytes are encoded as base64, with a property that indicates this."""
        text = _as_text(key) if self._keeps_text else None
        if text is None:
            properties[BASE64_KEY] = "true"
            text = base64.b64encode(key).decode()
        return text

    def _headers(self, message: Any) -> dict[str, str]:
        properties = {
            "__kafka_topic": message.topic(),
            "__kafka_partition": str(message.partition()),
            "__kafka_offset": str(message.offset()),
        }
        no_texts = []
        for name, value in message.headers() or ():
            text = "" if value is None else _as_text(value)
            if text is None:
                no_texts.append(name)
                text = base64.b64encode(value).decode()
            properties[name] = text
        if no_texts:
            properties[BASE64_NAMES] = ",".join(no_texts)
        return properties

    def _look_after(self) -> None:
        """Raise if there are no records because Kafka is unavailable."""
        if self._error is not None:
            text = cause_of(Exception(self._error))
            if self._error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
                raise MagnetarError(f"{text}, and autoOffsetReset is none")
            raise self._connection.away(text)
        if not self._connection.trouble:
            return
        found = self._consumer.list_topics(self._config.topic, timeout=_PROBE_S).topics[self._config.topic]
        if found.error is not None:
            raise self._connection.away(cause_of(Exception(found.error)))
        if any(partition.leader < 0 for partition in found.partitions.values()):
            raise self._connection.away("a partition has no leader")
        self._connection.forget()

    def snapshot(self) -> dict[str, Any]:
        """Return the current position."""
        assert self._stand is not None
        return self._stand.position()

    def divide(self, positions: Sequence[Position], instance_id: int, parallelism: int) -> Position:
        """Return the merged position of all instances, as the group may assign any partition to any instance."""
        joined: _Stand | None = None
        for stand in [_Stand.of(position) for position in positions if position is not None]:
            if joined is None:
                joined = stand
            elif joined.topic_id == stand.topic_id or not (joined.topic_id and stand.topic_id):
                joined.topic_id = joined.topic_id or stand.topic_id  # old brokers do not report IDs
                joined.join(stand)
            else:
                return None  # the topic was recreated, and the group's offsets belong to the new topic
        return None if joined is None else joined.position()

    def _durable(self, read: _Read) -> None:
        """Commit the offsets up to which all records are durable."""
        read.is_durable = True
        offsets: dict[int, int] = {}
        while self._reads and self._reads[0].is_durable:
            offsets.update(self._reads.popleft().offsets)
        if not offsets or self._config.partition >= 0:
            return
        mine = {one.partition for one in self._consumer.assignment()}
        kafka, topic, stand = self._kafka, self._config.topic, self._stand
        assert stand is not None
        places = [
            kafka.TopicPartition(topic, number, at, stand.metadata(number))
            for number, at in offsets.items()
            if number in mine
        ]
        if not places:
            return
        try:
            if self._config.auto_commit_enabled:
                self._consumer.store_offsets(offsets=places)
            else:
                self._consumer.commit(offsets=places, asynchronous=True)
        except kafka.KafkaException as error:
            raise Retry(f"cannot commit offsets: {cause_of(error)}") from error

    def close(self) -> None:
        """Close the connector."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None and not self._connection.trouble:
            consumer.close()
        # If Kafka is unavailable, close() would wait until the session expires. The client is closed with the object
        # instead.


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
