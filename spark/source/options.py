"""What `spark.read.format("magnetar").option(...)` takes: names as the JVM connector has them, checked and typed.

Options arrive as text, their names in any case. A name that means nothing is refused with the nearest one that does.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from ...client.config import Compression
from ...errors import InvalidConfig, MagnetarError
from ...security.credentials.client_security import ClientSecurity
from ...wire.compression import NAMES as COMPRESSIONS
from ...wire.message_id import MessageId, deserialize
from ...wire.topic_name import TopicName, parse_topic_name
from .security_options import SECURITY_OPTIONS, security_options

COLUMNS = ("value", "__key", "__topic", "__messageId", "__publishTime", "__eventTime", "__messageProperties")
"""The columns of a topic."""
NOT_NULL = frozenset(("__topic", "__messageId", "__publishTime"))
"""The columns that every message has."""
REMEDY = "set failOnDataLoss=false to go on with what there is"
"""What the user of the data source can do about entries that are gone."""
POLL_TIMEOUT_MS = 120_000
SEND_TIMEOUT_MS = 120_000

_TOPIC_OPTIONS = ("topic", "topics", "topicsPattern")
READ_OPTIONS = (
    "service.url", "admin.url", *_TOPIC_OPTIONS, "startingOffsets", "endingOffsets", "startingTime", "endingTime",
    "minPartitions", "failOnDataLoss", "pollTimeoutMs", "columns", "crypto.private.key", *SECURITY_OPTIONS,
)  # fmt: skip
WRITE_OPTIONS = (
    "service.url",
    "admin.url",
    "topic",
    "producer.name.prefix",
    "topic.partitions",
    "effectivelyOnce",
    "compression",
    "sendTimeoutMs",
    "encryption.keys",
    "crypto.public.key",
    *SECURITY_OPTIONS,
)
# A table made by SQL carries copies of its options, and who made it; a stream has a place for its checkpoint.
_SPARKS_OWN = re.compile(r"option\..*|owner|provider|checkpointlocation")


class Offsets(NamedTuple):
    """Where to begin or to end: for all topics alike, or by full topic name."""

    everywhere: Literal["earliest", "latest"] | None
    by_topic: Mapping[str, MessageId]


FROM_EARLIEST = Offsets("earliest", {})
TO_LATEST = Offsets("latest", {})


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How topics are read.

    Attributes:
        service_url: of the broker.
        admin_url: of its REST interface; with it the sizes of ledgers are asked for in one request.
        topics: which, unless ``pattern`` is set.
        pattern: matches the full names of topics, without their partitions, in its namespace.
        starting: first message that is read.
        ending: last message that is read.
        starting_time_ms: read what was published at this time or later.
        ending_time_ms: read what was published at this time or before.
        min_partitions: into how many ranges the entries are cut at least, None to choose.
        fail_on_data_loss: fail when something planned is gone, rather than go on without it.
        poll_timeout_ms: longest wait for the next entry.
        columns: which of `COLUMNS`.
        private_key: where the private key of encrypted messages is, a URI; empty for nowhere.
        security: what is shown to brokers, and how they are checked.
        remedy: what the user can do about entries that are gone.
    """

    service_url: str
    admin_url: str | None = None
    topics: tuple[TopicName, ...] = ()
    pattern: str | None = None
    starting: Offsets = FROM_EARLIEST
    ending: Offsets = TO_LATEST
    starting_time_ms: int | None = None
    ending_time_ms: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    columns: tuple[str, ...] = COLUMNS
    private_key: str = field(default="", repr=False)  # a URI may hold the key itself
    security: ClientSecurity = field(default_factory=ClientSecurity)
    remedy: str = REMEDY


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read.

    Raises:
        InvalidConfig: says which option is unknown, missing or wrong.
    """
    given = _known(options, READ_OPTIONS)
    topics, pattern = _topics(given)
    for bound, verb in (("starting", "begin"), ("ending", "end")):
        if f"{bound}time" in given and f"{bound}offsets" in given:
            raise InvalidConfig(f"{bound}Time and {bound}Offsets both say where to {verb}; give one of them")
    starting = _offsets("startingOffsets", given.get("startingoffsets", "earliest"), topics)
    if starting.everywhere == "latest":
        raise InvalidConfig("startingOffsets=latest reads nothing in a batch; give earliest or a position per topic")
    ending = _offsets("endingOffsets", given.get("endingoffsets", "latest"), topics)
    if ending.everywhere == "earliest":
        raise InvalidConfig("endingOffsets=earliest reads nothing; give latest or a position per topic")
    for name, begin in starting.by_topic.items():
        end = ending.by_topic.get(name)
        if end is not None and begin[:2] > end[:2]:
            raise InvalidConfig(
                f"startingOffsets {begin.ledger_id}:{begin.entry_id} of {name} lies behind its endingOffsets"
                f" {end.ledger_id}:{end.entry_id}; exchange them"
            )
    starting_time_ms = _number(given, "startingTime", 0)
    ending_time_ms = _number(given, "endingTime", 0)
    if starting_time_ms is not None and ending_time_ms is not None and starting_time_ms > ending_time_ms:
        raise InvalidConfig(f"startingTime={starting_time_ms} is later than endingTime={ending_time_ms}; exchange them")
    return ReadOptions(
        service_url=_needed(given, "service.url"),
        admin_url=given.get("admin.url"),
        topics=topics,
        pattern=pattern,
        starting=starting,
        ending=ending,
        starting_time_ms=starting_time_ms,
        ending_time_ms=ending_time_ms,
        min_partitions=_number(given, "minPartitions", 1),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        poll_timeout_ms=_number(given, "pollTimeoutMs", 1) or POLL_TIMEOUT_MS,
        columns=_columns(given.get("columns")),
        private_key=given.get("crypto.private.key", ""),
        security=security_options(given),
    )


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How rows are written.

    Attributes:
        service_url: of the broker.
        admin_url: of its REST interface; needed for ``effectively_once``.
        topic: full name; None takes each row's column ``__topic``.
        name_prefix: the producers of the tasks are called so, with the task's number. The same name means the same
            rows: what the broker has of it, it does not store again.
        partitions: of ``topic``, to which the rows go; 0: it has none. Which row goes where follows from it, so all
            attempts need the same number. None takes what there is.
        effectively_once: have the broker deduplicate the topic, and fail where it does not.
        compression: of the entries.
        send_timeout_ms: how long the broker may take to store an entry, with all reconnections.
        encryption_keys: names of the public key that messages are encrypted with; empty for none.
        public_key: where that key is, a URI.
        security: what is shown to brokers, and how they are checked.
    """

    service_url: str
    admin_url: str | None = None
    topic: str | None = None
    name_prefix: str
    partitions: int | None = None
    effectively_once: bool = False
    compression: Compression = "NONE"
    send_timeout_ms: int = SEND_TIMEOUT_MS
    encryption_keys: tuple[str, ...] = ()
    public_key: str = ""
    security: ClientSecurity = field(default_factory=ClientSecurity)


def write_options(options: Mapping[str, str], run_id: str) -> WriteOptions:
    """Return the options of a write.

    Args:
        options: of Spark.
        run_id: unique; names the producers where the options do not.

    Raises:
        InvalidConfig: says which option is unknown, missing or wrong.
    """
    given = _known(options, WRITE_OPTIONS)
    topic = given.get("topic")
    effectively_once = _boolean(given, "effectivelyOnce", False)
    if effectively_once and ("admin.url" not in given or topic is None):
        raise InvalidConfig(
            "effectivelyOnce=true needs option topic, and option admin.url to have the broker deduplicate it; give both"
        )
    if "topic.partitions" in given and topic is None:
        raise InvalidConfig("topic.partitions says of option topic how many there are; give it too, or leave both out")
    prefix = given.get("producer.name.prefix", f"spark-{run_id}")
    if not prefix:
        raise InvalidConfig("producer.name.prefix is empty; leave it out to have a new one for each write")
    compression = given.get("compression", "NONE").upper()
    if compression not in COMPRESSIONS:
        raise InvalidConfig(f"compression={compression!r} is not one of {', '.join(COMPRESSIONS)}")
    names = tuple(part.strip() for part in given.get("encryption.keys", "").split(",") if part.strip())
    if bool(names) != bool(given.get("crypto.public.key")):
        raise InvalidConfig(
            "encryption.keys says how the public key is called, and crypto.public.key where it is, such as"
            " file:///path; give both"
        )
    return WriteOptions(
        service_url=_needed(given, "service.url"),
        admin_url=given.get("admin.url"),
        topic=None if topic is None else parse_topic_name(topic).text,
        name_prefix=prefix,
        partitions=_number(given, "topic.partitions", 0),
        effectively_once=effectively_once,
        compression=cast(Compression, compression),
        send_timeout_ms=_number(given, "sendTimeoutMs", 1) or SEND_TIMEOUT_MS,
        encryption_keys=names,
        public_key=given.get("crypto.public.key", ""),
        security=security_options(given),
    )


def _known(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the options by their names in small letters; a name that is not in ``names`` is refused."""
    known = {name.lower(): name for name in names}
    given: dict[str, str] = {}
    for name, value in options.items():
        small = name.lower()
        if small == "path":
            small = "topic"  # what load("...") and save("...") give
        if small in known:
            if small in given:
                raise InvalidConfig(f"the topic is given twice: {given[small]!r} and {value!r}")
            given[small] = str(value).strip()
        elif not _SPARKS_OWN.fullmatch(small):
            if small in map(str.lower, (*READ_OPTIONS, *WRITE_OPTIONS)):
                verb = "writes" if names is WRITE_OPTIONS else "reads"
                raise InvalidConfig(f"option {name!r} is not for {verb}; leave it out; known are {', '.join(names)}")
            near = difflib.get_close_matches(small, known, 1, 0.5)
            hint = f"; did you mean {known[near[0]]}?" if near else f"; known are {', '.join(names)}"
            raise InvalidConfig(f"option {name!r} is unknown{hint}")
    return given


def _needed(given: Mapping[str, str], name: str) -> str:
    value = given.get(name.lower())
    if not value:
        raise InvalidConfig(f"option {name} is missing; for example .option({name!r}, 'pulsar://localhost:6650')")
    return value


def _topics(given: Mapping[str, str]) -> tuple[tuple[TopicName, ...], str | None]:
    chosen = [name for name in _TOPIC_OPTIONS if name.lower() in given]
    if len(chosen) != 1:
        what = "none is" if not chosen else f"{' and '.join(chosen)} are"
        raise InvalidConfig(f"exactly one of topic, topics and topicsPattern is needed; {what} given")
    text = given[chosen[0].lower()]
    if chosen[0] == "topicsPattern":
        check_pattern(text)
        return (), text
    parts = [text] if chosen[0] == "topic" else [part.strip() for part in text.split(",") if part.strip()]
    names = tuple(dict.fromkeys(parse_topic_name(part) for part in parts))
    if not names:
        raise InvalidConfig("option topics is empty; give names with commas between them")
    for name in names:
        if not name.is_persistent:
            raise InvalidConfig(f"{name} keeps no messages, so there is nothing to read; give a persistent topic")
    return names, None


def check_pattern(text: str) -> str:
    """Return the namespace ``tenant/namespace`` that a pattern of topic names looks into.

    Raises:
        InvalidConfig: it names none, or is no regular expression.
    """
    found = re.match(r"(?:persistent://)?([\w=:.-]+/[\w=:.-]+)/", text)
    if "://" in text and not text.startswith("persistent://"):
        raise InvalidConfig(f"topicsPattern={text!r} must begin with persistent://tenant/namespace/")
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"topicsPattern={text!r} is no regular expression: {error}") from error
    return found[1] if found else "public/default"


def _offsets(option: str, text: str, topics: tuple[TopicName, ...]) -> Offsets:
    if text.lower() in ("earliest", "latest"):
        return Offsets("earliest" if text.lower() == "earliest" else "latest", {})
    try:
        record = json.loads(text)
    except ValueError as error:
        if text.startswith("{"):
            raise InvalidConfig(f"{option}={text!r} is no JSON: {error}") from error
        record = None
    if not isinstance(record, dict):
        if len(topics) == 1:
            return Offsets(None, {topics[0].text: _position(option, text)})
        raise InvalidConfig(f"{option}={text!r} is neither earliest, latest nor JSON of topic -> position")
    by_topic = {parse_topic_name(name).text: _position(option, value) for name, value in record.items()}
    bases = {name.text for name in topics}
    for name in by_topic:
        if topics and name not in bases and parse_topic_name(name).base.text not in bases:
            raise InvalidConfig(f"{option} names {name}, which is not read; read are {', '.join(sorted(bases))}")
    return Offsets(None, by_topic)


def _position(option: str, value: object) -> MessageId:
    """Return the message id of ``ledger:entry[:batch index]`` or of the list of bytes that clients exchange."""
    if isinstance(value, str) and re.fullmatch(r"\d+:\d+(:\d+)?", value):
        ledger, entry, *index = map(int, value.split(":"))
        return MessageId(ledger, entry, batch_index=index[0] if index else -1)
    if isinstance(value, list):
        try:
            return deserialize(bytes(number & 255 for number in value))  # Java writes bytes as -128 to 127
        except (MagnetarError, TypeError) as error:
            raise InvalidConfig(f"{option}: {value!r} is no serialised message id: {error}") from error
    raise InvalidConfig(
        f"{option}: {value!r} is no position; give 'ledger:entry', 'ledger:entry:index' or the bytes of a message id"
    )


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return COLUMNS
    names = [part.strip() for part in text.split(",") if part.strip()]
    by_small = {name.lower(): name for name in COLUMNS}
    for name in names:
        if name.lower() not in by_small:
            near = difflib.get_close_matches(name.lower(), by_small, 1, 0.4)
            hint = f"did you mean {by_small[near[0]]}?" if near else f"there are {', '.join(COLUMNS)}"
            raise InvalidConfig(f"columns names {name!r}, which no topic has; {hint}")
    chosen = tuple(dict.fromkeys(by_small[name.lower()] for name in names))
    if not chosen:
        raise InvalidConfig(f"option columns is empty; there are {', '.join(COLUMNS)}")
    return chosen


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"-?\d+", text) or int(text) < least:
        raise InvalidConfig(f"{name}={text!r} is not a whole number of {least} or more")
    return int(text)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidConfig(f"{name}={text!r} is neither true nor false")
    return text.lower() == "true"
