"""Intended differences between our answers and the recorded ones, each with its reason.

By file and line number. A line that is listed must differ, in the way that is said here.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Deviation(NamedTuple):
    """Our own answer: its status, part of its body, and the reason for the difference."""

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
_NOT_FORGOTTEN = "a word that means nothing is refused; Pulsar takes it for none, and forgets what was set"
_NO_REDIRECT = "Jetty's redirect to the path with a slash, which is a 404 there too"
_REFUSED = "what this broker does not obey is refused by name"
_FOLLOWS = "follows from a refusal before"
_SLASH = "a topic's name has no slash here; Pulsar takes it for a name with a cluster and hides the topic"
_NO_PEEK = "no peek left a subscription behind, and our own compaction sends nothing"
_HASH_ORDER = "names one of the subscriptions that have nothing to expire; Pulsar's choice is that of a hash table"
_NO_REPLICATION = "a replicated subscription is refused: there is no other cluster"

_NO_JVM = "there is no JVM to tell of"
_FIRST_VERSION = "the paths of Pulsar 1 are not served"
_ONE_BROKER = "one broker has all bundles"


def _refused(*numbers: int, why: str = _REFUSED) -> dict[int, Deviation]:
    """Return deviations for requests that set an unsupported option."""
    return dict.fromkeys(numbers, Deviation(501, "is not supported by this broker", why))


def _follows(text: str, *numbers: int, status: int = 200, why: str = _FOLLOWS) -> dict[int, Deviation]:
    """Return deviations for requests that read an option after it was rejected."""
    return dict.fromkeys(numbers, Deviation(status, text, why))


DEVIATIONS: dict[str, dict[int, Deviation]] = {
    "tenants": {
        1: Deviation(200, '"pulsar"', "the recording began before Pulsar made its second tenant; we begin with both"),
    },
    "clusters-brokers": {
        **_refused(25, 28, 31, 36, 37, 45, 47, why=_ONE_BROKER),
        82: Deviation(200, '"metric":"broker_health"', _NO_JVM),
        83: Deviation(200, '"MBean":"java.lang:type=Runtime"', _NO_JVM),
        87: Deviation(200, '"directArenas":[]', _NO_JVM),
        88: Deviation(200, '"directArenas":[]', _NO_JVM),
        **_refused(94, 112, 118),
        26: Deviation(404, "Domain d1 for cluster standalone does not exist", _FOLLOWS),
        27: Deviation(200, "{}", _FOLLOWS),
        32: Deviation(404, "Domain-name d1 or cluster standalone does not exist", _FOLLOWS),
        **_follows("NamespaceIsolationPolicies for cluster standalone does not exist", 38, 39, status=404),
        46: Deviation(404, "Cluster does not exist", _FOLLOWS),
        64: Deviation(200, '"bookkeeperMetadataServiceUri":"none: ', "no metadata store that others reach"),
        65: Deviation(200, '["allowAutoSubscriptionCreation","allowAutoTopicCreation"', "fewer can be changed"),
        71: Deviation(412, "'abc': expected an integer", "Pulsar takes it, and fails later"),
        72: Deviation(412, "'true': expected an integer", "Pulsar takes it, and fails later"),
        73: Deviation(200, '{"dispatchThrottlingRatePerTopicInMsg":"100"}', _FOLLOWS),
        78: Deviation(200, '"maxMessageSize":"5242880"', "the settings that this broker has"),
        80: Deviation(200, '"public/functions/0x40000000_0x80000000"', "no namespaces for heartbeats of brokers"),
        90: Deviation(200, "{}", "there are no bookies"),
        91: Deviation(409, "there is no load manager", "without the name of a Java class"),
        95: Deviation(200, '"memory":80.0', _FOLLOWS),
        106: Deviation(404, "ResourceGroup does not exist", _BETTER_THAN_500),
        107: Deviation(400, "resource group is required", _BETTER_THAN_500),
        108: Deviation(404, "ResourceGroup does not exist", _BETTER_THAN_500),
        109: Deviation(200, '{"bookies":[]}', "there are no bookies"),
        **_follows("Bookie rack placement configuration not found", 113, 115, status=404),
        114: Deviation(200, "{}", _FOLLOWS),
        127: Deviation(200, "# TYPE pulsar_topics_count gauge", "metrics without a redirect: one request less"),
        128: Deviation(200, "# TYPE pulsar_topics_count gauge", "the metrics that this broker has"),
    },
    "namespaces": {
        **_refused(134, 136, 138, 286, 288, 289, 324, 374, 376, 512, 513),
        **_refused(502, 503, 506, 508, why=_ONE_BROKER),
        **_follows("", 139, 290, 325, 375),
        **_follows("-1", 135, 137, 216, 218, 287),
        **_follows('"boundaries":["0x00000000","0x40000000","0x80000000"', 505, 507),
        26: Deviation(400, "unknown policies field foo", _REFUSED),
        29: Deviation(200, "golden/ns-null", _FOLLOWS),
        160: Deviation(200, '"offload_threshold":-1', _FOLLOWS),
        241: Deviation(200, '"offload_threshold":-1', _FOLLOWS),
        312: Deviation(400, "missing backlog quota", _BETTER_THAN_500),
        336: Deviation(400, "invalid subscriptionAuthMode 'x': expected None or Prefix", _NOT_FORGOTTEN),
        341: Deviation(400, "invalid subscription type 'nope'", _BETTER_THAN_500),
        343: Deviation(400, "invalid schema strategy 'nope'", _NOT_FORGOTTEN),
        345: Deviation(400, "invalid schema strategy 'nope'", _NOT_FORGOTTEN),
        348: Deviation(400, "invalid inactiveTopicDeleteMode 'nope'", "Pulsar stores a policy without a mode"),
        386: Deviation(400, "invalid action 'fly'", "Pulsar stores a permission to do nothing"),
        437: Deviation(404, "Namespace does not exist", "Pulsar says nothing"),
        469: Deviation(404, "Namespace does not exist", "Pulsar says nothing"),
        463: Deviation(404, "Namespace does not exist", "the namespace is what is missing first"),
        483: Deviation(200, '["persistent://golden/ns2/t1"]', "no topic for the policies of topics"),
        488: Deviation(404, "Subscription nope not found on any topic of golden/ns2", _BETTER_THAN_500),
        504: Deviation(412, "Expected upper boundary of golden/ns2/0x00000000_0x40000000", _FOLLOWS),
        509: Deviation(412, "Failed to find ownership", _FOLLOWS),
        514: Deviation(200, '"migrated":false', _FOLLOWS),
        529: Deviation(404, "Namespace golden/ns-uf does not exist.", _FOLLOWS),
    },
    "topic-policies": {
        **_refused(147),
        **_follows("", 148, 149),
        26: Deviation(200, '"deleteWhileInactive":false', "no topic is deleted here unless somebody says so"),
        221: Deviation(204, "", "removed is the same as never set"),
        258: Deviation(400, "invalid schema strategy 'nope'", _NOT_FORGOTTEN),
        261: Deviation(400, "invalid subscription type 'nope'", _BETTER_THAN_500),
    },
    "topics": {
        20: Deviation(412, "Topic name is not valid", _SLASH),
        51: Deviation(200, '"ledgers":[]', "a topic's first ledger begins with its first entry"),
        56: Deviation(404, "Topic persistent://golden/nt/nope not found", _BETTER_THAN_500),
        88: Deviation(400, "position 0 is out of range", _BETTER_THAN_500),
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
    "nonpersistent": {
        22: Deviation(406, "Need to provide a persistent topic name", _BETTER_THAN_500),
        23: Deviation(501, "offloading is not supported", _BETTER_THAN_500),
        25: Deviation(406, "Need to provide a persistent topic name", _BETTER_THAN_500),
        27: Deviation(406, "Need to provide a persistent topic name", _BETTER_THAN_500),
        29: Deviation(406, "Need to provide a persistent topic name", _BETTER_THAN_500),
        31: Deviation(406, "Need to provide a persistent topic name", _BETTER_THAN_500),
        32: Deviation(406, "Need to provide a persistent topic name", _BETTER_THAN_500),
    },
    "schemas": {
        21: Deviation(400, "invalid schema version 'x'", _BETTER_THAN_500),
        28: Deviation(202, '"compatibility":false,"reason":"Error during schema', _BETTER_THAN_500),
        29: Deviation(202, '"compatibility":false,"reason":"Incompatible schema: exists', _BETTER_THAN_500),
        34: Deviation(422, "invalid schema type 'NOPE'", _BETTER_THAN_500),
        35: Deviation(422, "invalid schema type None", _BETTER_THAN_500),
        36: Deviation(400, "field schema of the request body is not a string", _BETTER_THAN_500),
        37: Deviation(422, "invalid schema type 'string'", _BETTER_THAN_500),
        41: Deviation(400, "empty request body", _BETTER_THAN_500),
        42: Deviation(400, "empty request body", _BETTER_THAN_500),
    },
    "schema-policies": {
        24: Deviation(400, "invalid schema strategy 'nope'", _NOT_FORGOTTEN),
        26: Deviation(400, "invalid schema strategy 'nope'", _NOT_FORGOTTEN),
        55: Deviation(400, "invalid schema strategy 'nope'", _NOT_FORGOTTEN),
    },
    "lookup": {
        8: Deviation(400, "the broker do not have nope listener", _BETTER_THAN_500),
        11: Deviation(404, "no such path", _BETTER_THAN_500),
        12: Deviation(412, "Topic name is not valid", _BETTER_THAN_500),
        15: Deviation(404, "no such path", "names with a cluster in them, from before Pulsar 2, are not served"),
        17: Deviation(200, '"brokerUrl":"pulsar://', "recorded with a header that the line does not hold"),
    },
    "errors": {
        **_follows("no such path", 2, 4, 10, 12, 14, status=404, why=_NO_REDIRECT),
        **_follows("no such path", 17, 18, 19, status=404, why=_FIRST_VERSION),
        56: Deviation(200, "[]", "topics of another recording were left there"),
        69: Deviation(400, "messageTTL 99999999999 is out of range", _BETTER_THAN_500),
        74: Deviation(400, '{"reason":"The request entity cannot be empty."}', "as JSON, which the answer is labelled"),
        84: Deviation(412, "Topic name is not valid", "topic names have at most 1,024 bytes here"),
        86: Deviation(
            412, "cannot be deleted: this broker belongs to it", "a broker without its cluster serves nobody"
        ),
        87: Deviation(200, '"standalone"', _FOLLOWS),
    },
}
