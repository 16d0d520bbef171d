"""Names of the data source's options, including Kafka's and Pulsar's, and parsers of their values.

Options are strings with case-insensitive names. Errors about unknown names suggest the closest known name.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache

from ...errors import InvalidConfig
from ...wire.topic_name import parse_topic_name
from .security_options import SECURITY_OPTIONS

TOPIC_OPTIONS = ("topic", "topics", "topicsPattern")
CLIENT_OPTIONS = ("magnetar.client.connectionTimeoutMs", "magnetar.client.operationTimeoutMs")
READER_OPTIONS = (*CLIENT_OPTIONS, "magnetar.reader.receiverQueueSize")
PRODUCER_OPTIONS = (
    *CLIENT_OPTIONS, "magnetar.producer.batchingMaxMessages", "magnetar.producer.batchingMaxBytes",
    "magnetar.producer.maxPendingMessages",
)  # fmt: skip
"""Connection settings for reading and writing, by their names in Pulsar's clients."""
START_OPTIONS = ("startingOffsets", "startingTime", "startingOffsetsByTimestamp")
END_OPTIONS = ("endingOffsets", "endingTime", "endingOffsetsByTimestamp")
SCHEMA_OPTIONS = ("useTopicSchema", "allowDifferentTopicSchemas", "mode")
COMMON_READ_OPTIONS = (
    "service.url", "admin.url", *TOPIC_OPTIONS, *START_OPTIONS, "minPartitions", "failOnDataLoss", "pollTimeoutMs",
    "columns", "includeHeaders", *SCHEMA_OPTIONS, "subscriptionPrefix", "crypto.private.key", *READER_OPTIONS,
    *SECURITY_OPTIONS,
)  # fmt: skip
STREAM_ONLY_OPTIONS = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "predefinedSubscription",
)  # fmt: skip
READ_OPTIONS = (*COMMON_READ_OPTIONS, *END_OPTIONS)
STREAM_OPTIONS = (*COMMON_READ_OPTIONS, *STREAM_ONLY_OPTIONS)
WRITE_OPTIONS = (
    "service.url",
    "admin.url",
    "topic",
    "producer.name.prefix",
    "topic.partitions",
    "effectivelyOnce",
    "compression",
    "outputSchema",
    "sendTimeoutMs",
    "encryption.keys",
    "crypto.public.key",
    *PRODUCER_OPTIONS,
    *SECURITY_OPTIONS,
)
STREAM_ONLY_WRITE_OPTIONS = ("unshuffled", "sortBy")
STREAM_WRITE_OPTIONS = (*WRITE_OPTIONS, *STREAM_ONLY_WRITE_OPTIONS)
_OF_KAFKA = {
    "subscribe": "topics",
    "subscribePattern": "topicsPattern",
    "assign": "topics",
    "startingTimestamp": "startingTime",
    "endingTimestamp": "endingTime",
}
"""Kafka's names for options that also exist here."""
_OF_CLIENTS = {
    "client.authPluginClassName": "auth.plugin",
    "client.authParams": "auth.params",
    "client.tlsTrustCertsFilePath": "tls.trust.certs.file",
    "client.tlsCertificateFilePath": "tls.certificate.file",
    "client.tlsKeyFilePath": "tls.key.file",
    "client.tlsAllowInsecureConnection": "tls.allow.insecure.connection",
    "client.tlsHostnameVerificationEnable": "tls.hostname.verification",
    "client.connectionTimeoutMs": "magnetar.client.connectionTimeoutMs",
    "client.operationTimeoutMs": "magnetar.client.operationTimeoutMs",
    "reader.receiverQueueSize": "magnetar.reader.receiverQueueSize",
    "reader.subscriptionRolePrefix": "subscriptionPrefix",
    "producer.sendTimeoutMs": "sendTimeoutMs",
    "producer.compressionType": "compression",
    "producer.batchingMaxMessages": "magnetar.producer.batchingMaxMessages",
    "producer.batchingMaxBytes": "magnetar.producer.batchingMaxBytes",
    "producer.maxPendingMessages": "magnetar.producer.maxPendingMessages",
}
"""Names in Pulsar's clients, after ``magnetar.`` or, as in the JVM connector, ``pulsar.``."""
PASSED_ON = tuple(f"magnetar.{name}" for name in _OF_CLIENTS)
_ALIASES = {name.lower(): ours for name, ours in _OF_KAFKA.items()} | {
    f"{owner}.{name}".lower(): ours for owner in ("magnetar", "pulsar") for name, ours in _OF_CLIENTS.items()
}
_INSTEAD = {
    "kafka.bootstrap.servers": "use service.url, for example pulsar://localhost:6650",
    "kafka.group.id": "use predefinedSubscription",
    "groupidprefix": "use subscriptionPrefix",
    "kafkaconsumer.polltimeoutms": "use pollTimeoutMs",
    "startingoffsetsbytimestampstrategy": "omit it: without entries at or after that time, reading starts at the end",
    "maxentriespertrigger": "use maxOffsetsPerTrigger, which counts messages",
}
"""Remedies for options of Kafka and others that work differently here."""
# Spark's own options: tables created by SQL have copies of their options and an owner; streams have a checkpoint
# location and a name.
_SPARKS_OWN = re.compile(r"option\..*|owner|provider|checkpointlocation|queryname")
log = logging.getLogger(__name__)


def known(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return the options by their canonical names in lower case.

    Raises:
        InvalidConfig: an option is not in ``names`` or is set twice.
    """
    by_small = {name.lower(): name for name in names}
    given: dict[str, str] = {}
    for name, value in options.items():
        small = name.lower()
        text = str(value).strip()
        if small == "path":
            small = "topic"  # set by load("...") and save("...")
        if small in _ALIASES and small not in by_small:
            if small == "assign":
                text = _assigned(text)
            ours = _ALIASES[small]
            _say_ours(name, ours)
            small = ours.lower()
        if small in by_small:
            if small in given:
                what = f": {given[small]!r} and {value!r}" if small == "topic" else ""
                raise InvalidConfig(f"{small} is set twice{what}: set it only once")
            given[small] = text
        elif not _SPARKS_OWN.fullmatch(small):
            raise InvalidConfig(_unknown(name, names))
    return given


@lru_cache(maxsize=64)
def _say_ours(name: str, ours: str) -> None:
    """Log the canonical name of an alias once per process."""
    if name.lower() != ours.lower():
        log.warning("option %s is an alias of %s; both are accepted", name, ours)


def _unknown(name: str, names: tuple[str, ...]) -> str:
    small = name.lower()
    listed = ", ".join(names)
    ours = _ALIASES.get(small, small).lower()
    if small in _INSTEAD:
        return f"option {name!r} is not supported: {_INSTEAD[small]}"
    if names is READ_OPTIONS and ours in map(str.lower, STREAM_ONLY_OPTIONS):
        return f"option {name!r} is only for streams: omit it or use spark.readStream"
    if names is STREAM_OPTIONS and ours in map(str.lower, END_OPTIONS):
        return f"option {name!r} is not supported by streams, which have no end: omit it or use spark.read"
    if names is WRITE_OPTIONS and ours in map(str.lower, STREAM_ONLY_WRITE_OPTIONS):
        return f"option {name!r} is only for streams: omit it or use df.writeStream"
    if ours in map(str.lower, (*READ_OPTIONS, *STREAM_OPTIONS, *STREAM_WRITE_OPTIONS)):
        verb = "writes" if names in (WRITE_OPTIONS, STREAM_WRITE_OPTIONS) else "reads"
        return f"option {name!r} is not supported for {verb}: expected one of {listed}"
    if re.match(r"(magnetar|pulsar)\.(client|reader|producer)\.", small):
        small_names = set(map(str.lower, names))
        passed_on = [one for one in PASSED_ON if _ALIASES[one.lower()].lower() in small_names]
        return f"option {name!r} is not passed to the client: expected one of {', '.join(passed_on)}"
    by_small = {one.lower(): one for one in names}
    near = difflib.get_close_matches(small, by_small, 1, 0.5)
    return f"option {name!r} is unknown" + (
        f"; did you mean {by_small[near[0]]}?" if near else f": expected one of {listed}"
    )


def _assigned(text: str) -> str:
    """Return the partitions listed in Kafka's option ``assign``."""
    wanted = 'JSON of topic -> partitions, such as {"orders": [0, 1]}'
    try:
        record = json.loads(text)
        names = [
            parse_topic_name(topic).partition_name(partition).text
            for topic, partitions in record.items()
            for partition in partitions
        ]
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidConfig(f"invalid assign {text!r}: expected {wanted}") from error
    return ",".join(names)


def needed(given: Mapping[str, str], name: str) -> str:
    """Return a required option."""
    value = given.get(name.lower())
    if not value:
        raise InvalidConfig(f"option {name} is required; for example .option({name!r}, 'pulsar://localhost:6650')")
    return value


def number(given: Mapping[str, str], name: str, least: int) -> int | None:
    """Return an integer option, or None if it is not set."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"-?\d+", text) or int(text) < least:
        raise InvalidConfig(f"invalid {name} {text!r}: expected an integer of at least {least}")
    return int(text)


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Return a boolean option."""
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidConfig(f"invalid {name} {text!r}: expected true or false")
    return text.lower() == "true"


_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def seconds(given: Mapping[str, str], name: str, default_s: float) -> float:
    """Parse a duration as in Spark, such as ``500ms``, ``30s`` or ``15m``; a bare number means milliseconds."""
    text = given.get(name.lower())
    if text is None:
        return default_s
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    unit = found and (found[2] or "ms")
    if not found or unit not in _UNITS_S:
        raise InvalidConfig(f"invalid {name} {text!r}: expected a time such as 500ms, 30s or 15m")
    return int(found[1]) * float(_UNITS_S[unit])
