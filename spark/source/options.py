"""Options of `spark.read.format("magnetar").option(...)`, named as in the JVM connector, validated and typed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ...client.config import Compression
from ...errors import InvalidConfig
from ...security.credentials.client_security import ClientSecurity
from ...wire.compression import NAMES as COMPRESSIONS
from ...wire.message_id import LATEST
from ...wire.topic_name import TopicName, parse_topic_name
from .connection import DEFAULT_TIMEOUTS, Timeouts
from .entry_boundaries import MAX_BYTES, MAX_ROWS
from .offsets import FROM_EARLIEST, TO_LATEST, Offsets, read_offsets, read_times
from .option_names import (
    READ_OPTIONS,
    STREAM_OPTIONS,
    TOPIC_OPTIONS,
    WRITE_OPTIONS,
    boolean,
    known,
    needed,
    number,
)
from .reader import NAME_PREFIX as SUBSCRIPTION_PREFIX
from .security_options import security_options

if TYPE_CHECKING:
    from .schemas.writing import RowSchema

COLUMNS = ("value", "__key", "__topic", "__messageId", "__publishTime", "__eventTime", "__messageProperties")
"""Columns of a topic."""
POSITION_COLUMNS = ("__partition", "__ledgerId", "__entryId", "__batchIndex")
"""Columns that are included only if named in the option ``columns``."""
HEADERS = "__messageProperties"
NOT_NULL = frozenset(("__topic", "__messageId", "__publishTime", "__ledgerId", "__entryId"))
"""Columns that are never null."""
REMEDY = "set failOnDataLoss=false to continue with the remaining data"
"""Remedy for entries that no longer exist."""
MODES = ("FAILFAST", "PERMISSIVE")
"""Handling of values that do not match their schema, as in Spark's own readers."""
OUTPUT_SCHEMAS = ("AVRO", "JSON")
"""Schema types for writing columns."""
POLL_TIMEOUT_MS = 120_000
SEND_TIMEOUT_MS = 120_000
MAX_PENDING_MESSAGES = 50_000

MAX_AHEAD_MESSAGES = 50_000
"""Default maximum number of messages that the broker may send ahead of a task."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading topics.

    Attributes:
        service_url: broker URL.
        admin_url: URL of the REST interface, which returns the sizes of all ledgers in a single request.
        topics: topics to read, unless ``pattern`` is set.
        pattern: pattern for the full names of topics in its namespace, without partition suffixes.
        starting: first message to read.
        ending: last message to read.
        starting_time_ms: earliest publish time.
        starting_times_ms: earliest publish time by full topic name.
        ending_time_ms: latest publish time.
        ending_times_ms: latest publish time by full topic name.
        min_partitions: minimum number of ranges; None for the default.
        fail_on_data_loss: whether to fail if planned messages no longer exist, instead of skipping them.
        poll_timeout_ms: maximum wait for the next entry.
        columns: selected `COLUMNS`; with ``use_topic_schema``, the names from the option, empty for all columns.
        use_topic_schema: whether to decode values with their topics' schemas instead of returning bytes.
        allow_different_schemas: whether the topics may have different schemas.
        is_permissive: whether values that do not match the schema are read as null instead of raising an error.
        subscription_prefix: prefix of the tasks' subscription names.
        ahead_messages: maximum number of messages that the broker may send ahead of a task.
        timeouts: connection timeouts.
        private_key: URI of the private key for encrypted messages, or empty.
        security: credentials and TLS settings.
        remedy: remedy for entries that no longer exist, for error messages.
    """

    service_url: str
    admin_url: str | None = None
    topics: tuple[TopicName, ...] = ()
    pattern: str | None = None
    starting: Offsets = FROM_EARLIEST
    ending: Offsets = TO_LATEST
    starting_time_ms: int | None = None
    starting_times_ms: Mapping[str, int] = field(default_factory=dict)
    ending_time_ms: int | None = None
    ending_times_ms: Mapping[str, int] = field(default_factory=dict)
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    columns: tuple[str, ...] = COLUMNS
    use_topic_schema: bool = False
    allow_different_schemas: bool = False
    is_permissive: bool = False
    subscription_prefix: str = SUBSCRIPTION_PREFIX
    ahead_messages: int = MAX_AHEAD_MESSAGES
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    private_key: str = field(default="", repr=False)  # a URI may contain the key itself
    security: ClientSecurity = field(default_factory=ClientSecurity)
    remedy: str = REMEDY


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a batch.

    Raises:
        InvalidConfig: an option is unknown, missing or invalid; the message names it.
    """
    given = known(options, READ_OPTIONS)
    common = common_options(given, "earliest")
    if common.starting.everywhere == "latest":
        raise InvalidConfig(
            "startingOffsets=latest would read nothing in a batch: use earliest or a position per topic"
        )
    if common.ending.everywhere == "earliest":
        raise InvalidConfig("endingOffsets=earliest would read nothing: use latest or a position per topic")
    for name, begin in common.starting.by_topic.items():
        end = common.ending.by_topic.get(name)
        if end is not None and begin[:2] > end[:2] and begin != LATEST:
            raise InvalidConfig(
                f"startingOffsets {begin.ledger_id}:{begin.entry_id} of {name} is after its endingOffsets"
                f" {end.ledger_id}:{end.entry_id}: swap them"
            )
    first, last = common.starting_time_ms, common.ending_time_ms
    if first is not None and last is not None and first > last:
        raise InvalidConfig(f"startingTime={first} is after endingTime={last}: swap them")
    return common


def common_of(options: Mapping[str, str]) -> ReadOptions:
    """Return the options that determine a read's columns, before it is known whether it is a batch or a stream.

    Raises:
        InvalidConfig: an option is invalid, or unknown for both batches and streams.
    """
    is_stream = not any(
        name in map(str.lower, options) for name in map(str.lower, set(READ_OPTIONS) - set(STREAM_OPTIONS))
    )
    given = known(options, (*READ_OPTIONS, *STREAM_OPTIONS) if is_stream else READ_OPTIONS)
    return common_options(given, "earliest")


def common_options(given: Mapping[str, str], default_start: str) -> ReadOptions:
    """Return the options shared by batches and streams.

    Args:
        given: all options by their canonical names in lower case.
        default_start: default start position.
    """
    topics, pattern = _topics(given)
    times = {bound: _bound(given, bound, topics) for bound in ("starting", "ending")}
    use_topic_schema = boolean(given, "useTopicSchema", False)
    prefix = given.get("subscriptionprefix", SUBSCRIPTION_PREFIX)
    if not prefix:
        raise InvalidConfig(f"subscriptionPrefix is empty: omit it to use {SUBSCRIPTION_PREFIX}")
    return ReadOptions(
        service_url=needed(given, "service.url"),
        admin_url=given.get("admin.url"),
        topics=topics,
        pattern=pattern,
        starting=read_offsets("startingOffsets", given.get("startingoffsets", default_start), topics),
        ending=read_offsets("endingOffsets", given.get("endingoffsets", "latest"), topics),
        starting_time_ms=number(given, "startingTime", 0),
        starting_times_ms=times["starting"],
        ending_time_ms=number(given, "endingTime", 0),
        ending_times_ms=times["ending"],
        min_partitions=number(given, "minPartitions", 1),
        fail_on_data_loss=boolean(given, "failOnDataLoss", True),
        poll_timeout_ms=number(given, "pollTimeoutMs", 1) or POLL_TIMEOUT_MS,
        columns=_headers(given, (_names if use_topic_schema else _columns)(given.get("columns"))),
        use_topic_schema=use_topic_schema,
        allow_different_schemas=boolean(given, "allowDifferentTopicSchemas", False),
        is_permissive=_is_permissive(given, use_topic_schema=use_topic_schema),
        subscription_prefix=prefix,
        ahead_messages=number(given, "magnetar.reader.receiverQueueSize", 1) or MAX_AHEAD_MESSAGES,
        timeouts=_timeouts(given),
        private_key=given.get("crypto.private.key", ""),
        security=security_options(given),
    )


def _bound(given: Mapping[str, str], bound: str, topics: tuple[TopicName, ...]) -> dict[str, int]:
    """Return the start or end times by topic; only one option may set either bound."""
    options = (f"{bound}Time", f"{bound}OffsetsByTimestamp", f"{bound}Offsets")
    said = [option for option in options if option.lower() in given]
    if len(said) > 1:
        verb = "begin" if bound == "starting" else "end"
        raise InvalidConfig(f"{said[0]} and {said[1]} both set where to {verb}: set only one of them")
    text = given.get(options[1].lower())
    return {} if text is None else read_times(options[1], text, topics)


def _timeouts(given: Mapping[str, str]) -> Timeouts:
    connect_ms = number(given, "magnetar.client.connectionTimeoutMs", 1)
    request_ms = number(given, "magnetar.client.operationTimeoutMs", 1)
    return Timeouts(
        connect_s=DEFAULT_TIMEOUTS.connect_s if connect_ms is None else connect_ms / 1000,
        request_s=DEFAULT_TIMEOUTS.request_s if request_ms is None else request_ms / 1000,
    )


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Options for writing rows.

    Attributes:
        service_url: broker URL.
        admin_url: URL of the REST interface; required for ``effectively_once``.
        topic: full topic name; None to use each row's column ``__topic``.
        name_prefix: prefix of producer names, which end with the task number. The same producer name implies the same
            rows: the broker drops rows that it has already stored.
        partitions: number of partitions of ``topic``, 0 if it is not partitioned, or None for the current number. It
            determines the partition of each row, so all attempts must use the same number.
        effectively_once: whether to enable deduplication of the topic, and fail if that is not possible.
        compression: compression of entries.
        output_schema: AVRO or JSON to create values from columns; None to use the column ``value``.
        schema: schema of the values, set once the columns are known.
        send_timeout_ms: time limit for storing an entry, including reconnections.
        entry_rows: maximum number of rows per entry. All attempts must use the same value.
        entry_bytes: maximum size of payloads and metadata per entry, unless a single row is larger. All attempts must
            use the same value.
        pending_messages: maximum number of pending messages for each topic or partition that a task writes to.
        timeouts: connection timeouts.
        encryption_keys: names of the public keys for encryption; empty for no encryption.
        public_key: URI of the public key.
        security: credentials and TLS settings.
    """

    service_url: str
    admin_url: str | None = None
    topic: str | None = None
    name_prefix: str
    partitions: int | None = None
    effectively_once: bool = False
    compression: Compression = "NONE"
    output_schema: str | None = None
    schema: RowSchema | None = None
    send_timeout_ms: int = SEND_TIMEOUT_MS
    entry_rows: int = MAX_ROWS
    entry_bytes: int = MAX_BYTES
    pending_messages: int = MAX_PENDING_MESSAGES
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    encryption_keys: tuple[str, ...] = ()
    public_key: str = ""
    security: ClientSecurity = field(default_factory=ClientSecurity)


def write_options(options: Mapping[str, str], run_id: str) -> WriteOptions:
    """Parse the options of a write.

    Args:
        options: Spark's options.
        run_id: unique id, used in the default producer names.

    Raises:
        InvalidConfig: an option is unknown, missing or invalid; the message names it.
    """
    given = known(options, WRITE_OPTIONS)
    effectively_once = boolean(given, "effectivelyOnce", False)
    if effectively_once and ("admin.url" not in given or "topic" not in given):
        raise InvalidConfig(
            "effectivelyOnce=true requires the options topic and admin.url, to enable deduplication of the topic: set"
            " both"
        )
    return common_write_options(given, f"spark-{run_id}", effectively_once=effectively_once)


def common_write_options(given: Mapping[str, str], name_prefix: str, *, effectively_once: bool) -> WriteOptions:
    """Return the options shared by batches and streams.

    Args:
        given: all options by their canonical names in lower case.
        name_prefix: default prefix of the producers.
        effectively_once: value of the option ``effectivelyOnce``.
    """
    topic = given.get("topic")
    if "topic.partitions" in given and topic is None:
        raise InvalidConfig("topic.partitions requires option topic: set both or neither")
    prefix = given.get("producer.name.prefix", name_prefix)
    if not prefix:
        raise InvalidConfig("producer.name.prefix is empty: omit it to use a new prefix for each write")
    compression = given.get("compression", "NONE").upper()
    if compression not in COMPRESSIONS:
        raise InvalidConfig(f"invalid compression {compression!r}: expected one of {', '.join(COMPRESSIONS)}")
    names = tuple(part.strip() for part in given.get("encryption.keys", "").split(",") if part.strip())
    if bool(names) != bool(given.get("crypto.public.key")):
        raise InvalidConfig(
            "encryption.keys (the name of the public key) and crypto.public.key (its location, such as file:///path)"
            " must be set together"
        )
    return WriteOptions(
        service_url=needed(given, "service.url"),
        admin_url=given.get("admin.url"),
        topic=None if topic is None else parse_topic_name(topic).text,
        name_prefix=prefix,
        partitions=number(given, "topic.partitions", 0),
        effectively_once=effectively_once,
        compression=cast(Compression, compression),
        output_schema=_output_schema(given.get("outputschema")),
        send_timeout_ms=number(given, "sendTimeoutMs", 1) or SEND_TIMEOUT_MS,
        entry_rows=number(given, "magnetar.producer.batchingMaxMessages", 1) or MAX_ROWS,
        entry_bytes=number(given, "magnetar.producer.batchingMaxBytes", 1) or MAX_BYTES,
        pending_messages=number(given, "magnetar.producer.maxPendingMessages", 1) or MAX_PENDING_MESSAGES,
        timeouts=_timeouts(given),
        encryption_keys=names,
        public_key=given.get("crypto.public.key", ""),
        security=security_options(given),
    )


def _output_schema(text: str | None) -> str | None:
    if text is not None and text.upper() not in OUTPUT_SCHEMAS:
        raise InvalidConfig(
            f"invalid outputSchema {text!r}: expected one of {', '.join(OUTPUT_SCHEMAS)}; omit it to write the column"
            " value"
        )
    return text and text.upper()


def _topics(given: Mapping[str, str]) -> tuple[tuple[TopicName, ...], str | None]:
    chosen = [name for name in TOPIC_OPTIONS if name.lower() in given]
    if len(chosen) != 1:
        what = "none is" if not chosen else f"{' and '.join(chosen)} are"
        raise InvalidConfig(f"exactly one of topic, topics and topicsPattern must be set, but {what} set")
    text = given[chosen[0].lower()]
    if chosen[0] == "topicsPattern":
        check_pattern(text)
        return (), text
    parts = [text] if chosen[0] == "topic" else [part.strip() for part in text.split(",") if part.strip()]
    names = tuple(dict.fromkeys(parse_topic_name(part) for part in parts))
    if not names:
        raise InvalidConfig("option topics is empty: expected topic names separated by commas")
    for name in names:
        if not name.is_persistent:
            raise InvalidConfig(f"{name} is non-persistent and stores no messages: use a persistent topic")
    return names, None


def check_pattern(text: str) -> str:
    """Return the namespace ``tenant/namespace`` of a topic name pattern.

    Raises:
        InvalidConfig: the pattern does not start with a namespace, or is not a valid regular expression.
    """
    found = re.match(r"(?:persistent://)?([\w=:.-]+/[\w=:.-]+)/", text)
    if "://" in text and not text.startswith("persistent://"):
        raise InvalidConfig(f"invalid topicsPattern {text!r}: must start with persistent://tenant/namespace/")
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"invalid topicsPattern {text!r}: not a regular expression: {error}") from error
    return found[1] if found else "public/default"


def _is_permissive(given: Mapping[str, str], *, use_topic_schema: bool) -> bool:
    """Return whether the option ``mode`` is PERMISSIVE; reject schema options without ``useTopicSchema``."""
    for name in ("allowDifferentTopicSchemas", "mode"):
        if name.lower() in given and not use_topic_schema:
            raise InvalidConfig(
                f"{name} applies only to columns of the topic's schema: set useTopicSchema=true as well"
            )
    mode = given.get("mode", MODES[0]).upper()
    if mode not in MODES:
        raise InvalidConfig(f"invalid mode {mode!r}: expected one of {', '.join(MODES)}")
    return mode == "PERMISSIVE"


def _names(text: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))
    if text is not None and not names:
        raise InvalidConfig("option columns is empty: omit it to read all columns")
    return names


def _headers(given: Mapping[str, str], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns with or without message properties, according to Kafka's option ``includeHeaders``."""
    if "includeheaders" not in given or not columns:
        if not boolean(given, "includeHeaders", True):
            raise InvalidConfig(
                "includeHeaders=false with useTopicSchema requires option columns: list the columns to read"
            )
        return columns
    if boolean(given, "includeHeaders", True):
        return columns if HEADERS in columns else (*columns, HEADERS)
    if "columns" in given and HEADERS in columns:
        raise InvalidConfig(
            f"includeHeaders=false excludes {HEADERS}, but option columns includes it: remove one of them"
        )
    return tuple(name for name in columns if name != HEADERS)


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return COLUMNS
    names = [part.strip() for part in text.split(",") if part.strip()]
    there = (*COLUMNS, *POSITION_COLUMNS)
    by_small = {name.lower(): name for name in there}
    for name in names:
        if name.lower() not in by_small:
            near = difflib.get_close_matches(name.lower(), by_small, 1, 0.4)
            hint = f"did you mean {by_small[near[0]]}?" if near else f"expected {', '.join(there)}"
            raise InvalidConfig(f"unknown column {name!r} in option columns: {hint}")
    chosen = tuple(dict.fromkeys(by_small[name.lower()] for name in names))
    if not chosen:
        raise InvalidConfig(f"option columns is empty: expected {', '.join(there)}")
    return chosen
