"""Where our answers differ from the recorded ones, on purpose, each with its reason.

By file and line number. A line that is listed must differ, in the way that is said here.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Deviation(NamedTuple):
    """What we answer instead: the status, a piece of the body, and why."""

    status: int
    text: str
    why: str


FIELDS_OF_OUR_OWN = {
    re.compile(pattern): why
    for pattern, why in (
        (r"^/cursors/[^/]+/cursorLedgerLastEntry: ", "cursors lie in the journal, not in ledgers of their own"),
        (r"^/cursors/[^/]+/version: ", "the same: nothing is counted up with each of their changes"),
        (
            r"^/cursors/[^/]+/readPosition: expected '<varies>:-1'",
            "Pulsar shows the place before the first entry as read position where nothing was read yet",
        ),
        (
            r"^/cursors/[^/]+/numberOfEntriesSinceFirstNotAckedMessage: expected 0, got 1$",
            "counted up to the read position, see there",
        ),
    )
}
"""Fields inside an answer, by the difference they make; everything else in the answer is compared."""

_BETTER_THAN_500 = "a request that cannot be carried out is refused; Pulsar fails inside"
_NO_REDIRECT = "Jetty's redirect to the path with a slash, which is a 404 there too"
_REFUSED = "what this broker does not obey is refused by name"
_FOLLOWS = "follows from a refusal before"
_SLASH = "a topic's name has no slash here; Pulsar takes it for a name with a cluster and hides the topic"
_NO_PEEK = "no peek left a subscription behind, and our own compaction sends nothing"
_HASH_ORDER = "names one of the subscriptions that have nothing to expire; Pulsar's choice is that of a hash table"
_NO_REPLICATION = "a replicated subscription is refused: there is no other cluster"

DEVIATIONS: dict[str, dict[int, Deviation]] = {
    "tenants": {
        1: Deviation(200, '"pulsar"', "the recording began before Pulsar made its second tenant; we begin with both"),
    },
    "clusters-brokers": {
        39: Deviation(200, '"metadataStoreUrl":"sqlite:', "another metadata store"),
        40: Deviation(200, "[]", "no setting can be changed while the broker runs"),
        46: Deviation(200, '"maxMessageSize":"5242880"', "the settings that this broker has"),
        48: Deviation(200, '"public/functions/0x40000000_0x80000000"', "no namespaces for heartbeats of brokers"),
        61: Deviation(200, "# TYPE pulsar_topics_count gauge", "metrics without a redirect: one request less"),
    },
    "namespaces": {
        24: Deviation(501, "Authorization is not enabled", _REFUSED),
        25: Deviation(400, "unknown field foo in the policies", _REFUSED),
        28: Deviation(200, "golden/ns-null", _FOLLOWS),
        112: Deviation(204, "", "no backlog quota is set, because setting one is refused"),
        195: Deviation(200, '["persistent://golden/ns2/t1"]', "no topic for the policies of topics"),
        200: Deviation(404, "Subscription nope not found on any topic of golden/ns2", _BETTER_THAN_500),
        229: Deviation(404, "Namespace golden/ns-p does not exist.", _FOLLOWS),
        230: Deviation(404, "Namespace golden/ns-uf does not exist.", _FOLLOWS),
    },
    "topics": {
        20: Deviation(412, "Topic name is not valid", _SLASH),
        51: Deviation(200, '"ledgers":[]', "a topic's first ledger begins with its first entry"),
        56: Deviation(404, "Topic persistent://golden/nt/nope not found", _BETTER_THAN_500),
        88: Deviation(400, "position 0 is out of range", _BETTER_THAN_500),
        90: Deviation(404, "Subscription nope not found", "looking at a topic must not change it"),
        95: Deviation(404, "has no entry 99", _BETTER_THAN_500),
        97: Deviation(404, "has no entry -1", _BETTER_THAN_500),
        104: Deviation(200, "m0", "past the start is the first message, as past the end is the last one"),
        114: Deviation(400, "messageId is null", _BETTER_THAN_500),
        130: Deviation(200, '"s1":', _NO_PEEK),
        131: Deviation(200, '"numberOfEntries":5', f"{_NO_PEEK}; the next ledger begins with its first entry"),
        135: Deviation(200, '"s1":', _NO_PEEK),
        136: Deviation(200, '"numberOfEntries":0', f"{_NO_PEEK}; the next ledger begins with its first entry"),
        142: Deviation(200, '"state":"Terminated"', "the last ledger of a terminated topic is closed, and shown so"),
        143: Deviation(200, '"terminatedPosition":', "the same"),
        163: Deviation(412, "Topic name is not valid", _SLASH),
    },
    "partitioned": {
        10: Deviation(406, "Number of partitions should be more than 0", _BETTER_THAN_500),
        41: Deviation(400, '{"reason":"The request entity cannot be empty."}', "as JSON, which the answer is labelled"),
        65: Deviation(200, '"lastConsumedFlowTimestamp":', "the latest time of the partitions; Pulsar leaves it out"),
        88: Deviation(200, '"entryId":2', "Pulsar 4.0.7 trips over its own metadata here"),
    },
    "subscriptions": {
        8: Deviation(501, "a replicated subscription is not supported", _NO_REPLICATION),
        15: Deviation(200, "with/special chars", _FOLLOWS),
        20: Deviation(501, "changing the properties of a subscription is not supported", _REFUSED),
        21: Deviation(200, '{"a":"b"}', _FOLLOWS),
        25: Deviation(404, "Subscription rep not found", _FOLLOWS),
        27: Deviation(501, "a replicated subscription is not supported", _NO_REPLICATION),
        28: Deviation(200, "false", _FOLLOWS),
        33: Deviation(409, "Expire message by timestamp not issued", _HASH_ORDER),
        39: Deviation(200, '"early":', _FOLLOWS),
        62: Deviation(400, "messageId is null", _BETTER_THAN_500),
        83: Deviation(400, "messageId is null", _BETTER_THAN_500),
        87: Deviation(409, "Expire message by timestamp not issued", _HASH_ORDER),
        114: Deviation(200, "props", _FOLLOWS),
    },
    "lookup": {
        8: Deviation(400, "the broker has no listener nope", _BETTER_THAN_500),
        11: Deviation(404, "no such path", _BETTER_THAN_500),
        12: Deviation(412, "Topic name is not valid", _BETTER_THAN_500),
        15: Deviation(404, "no such path", "names with a cluster in them, from before Pulsar 2, are not served"),
        17: Deviation(200, '"brokerUrl":"pulsar://', "recorded with a header that the line does not hold"),
    },
    "errors": {
        2: Deviation(404, "no such path", _NO_REDIRECT),
        4: Deviation(404, "no such path", _NO_REDIRECT),
        10: Deviation(404, "no such path", _NO_REDIRECT),
        12: Deviation(404, "no such path", _NO_REDIRECT),
        55: Deviation(412, "Topic name is not valid", "topic names have at most 1,024 bytes here"),
    },
}
