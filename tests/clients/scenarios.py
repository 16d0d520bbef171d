"""What official clients must observe: the same on our broker and on an Apache Pulsar, whatever their language.

Each program (`java/Scenarios.java`, `go/main.go`, `python_scenarios.py`) plays the scenarios that its client can and
writes what it saw as JSON; here is what it must be. Each scenario has a topic of its own, on which:

- order: 100 messages with keys, properties and event times in batches; how many came as sent, in order, and the keys.
- compression: a message each by LZ4, ZLIB and ZSTD; their lengths.
- chunks: a message of 12 MB in chunks and one after it; whether it is the same, and the next one.
- shared: of two consumers of a Shared subscription one takes a message and closes; whether it had one, and how many of
  20 were there in the end.
- redelivery_count: a message that is negatively acknowledged twice; its counts.
- delayed: a message that is to be given out after 5 s, one at a time, one at once; in which order they came, and
  whether none came early.
- ack_timeout: a message that is not acknowledged in time; what came, what came again, and its count.
- dead_letter: one of two messages always fails, at most 2 redeliveries; how often it came, whether the other one did,
  what the dead letter is, whether it names its topic, and what is left of the subscription.
- retry_letter: a message that is put off each time, at most 2 times; how often it had been when it came, and the dead
  letter.
- failover: the active consumer closes with one of six messages unacknowledged; what both acknowledged.
- key_shared: 200 messages of 20 keys, batched by key, for two consumers; how many came, whether in order for each key,
  how many consumers a key had at most, and how many consumers had any.
- sticky: 10 keys, not in batches, for two consumers with half of the range each; the keys of both, and how a third one
  is met that asks for what they have.
- batch_index: every other one of a batch of 10 is acknowledged; what the next consumer gets, and that there is no more.
- exclusive_is_busy: a second consumer of an Exclusive subscription.
- cumulative: seven of ten are acknowledged at once; what the next consumer gets.
- seek: to the beginning, to a message, to a time, to the end; the first message after each.
- reader: all messages, the one after the second, and whether there is one after the end.
- compacted: keys overwritten, one deleted; what is left.
- table_view: three keys, written twice; their values, then one that is written again and one that is deleted.
- deduplication: sequence ids sent again by a producer of the same name; what is there, and that there is no more.
- access_mode: producers beside an exclusive one.
- partitioned: 10 keys on 3 partitions; keys, partitions of a key at most, partitions.
- regex: a consumer of a pattern, a topic from before and one from after it subscribed (Python looks every 60 s only:
  both from before), and a third that the pattern does not take; what came.
- non_persistent: five messages for a consumer, one for nobody, one for the next consumer; what came.
- schemas: which types of values do not come as sent; fields of three records of two versions as a consumer of whatever
  comes sees them; how a producer and a consumer are refused whose schemas do not fit; what the registry has, whether
  the first version still fits, the number of the second, and how many are left after their deletion.
- unsubscribe: subscriptions afterwards.
- administration: backlog, peeked, backlog after skipping 4, after a reset, after skipping all, entries after an unload,
  whether terminating names the end, what a producer meets, whether it is listed after its deletion.
"""

from __future__ import annotations

from typing import Any

EXPECTED: dict[str, Any] = {
    "order": [100, ["k0", "k1", "k2", "k3", "k4"]],
    "compression": [10_000, 10_000, 10_000],
    "chunks": [True, ["after"]],
    "shared": [True, 20],
    "redelivery_count": [0, 1, 2],
    "delayed": ["m2", True, "m1", True, "m0", True],
    "ack_timeout": ["m0", "m0", 1],
    "dead_letter": [3, True, "m0", True, 0],
    "retry_letter": [["", "1", "2"], ["m0"]],
    "failover": ["m0", "m1", "m2", "m3", "m4", "m5"],
    "key_shared": [200, True, 1, 2],
    "sticky": [["k0", "k1", "k2", "k4", "k6", "k8"], ["k3", "k5", "k7", "k9"], "is refused"],
    "batch_index": ["m1", "m3", "m5", "m7", "m9", None],
    "exclusive_is_busy": "busy",
    "cumulative": ["m7", "m8", "m9"],
    "seek": [["m0"], ["m6"], ["m0"], ["m10"]],
    "reader": ["m0", "m1", "m2", "m3", "m4", "m2", "false"],
    "compacted": ["m7", "m8"],
    "table_view": ["m3", "m4", "m5", "m6", None],
    "deduplication": ["m0", "m1", "m2", "m3", "m4", "m5", None],
    "access_mode": ["fenced", "busy", "waits", "has it"],
    "partitioned": [10, 1, 3],
    "regex": ["m0", "m1", None],
    "non_persistent": ["m0", "m1", "m2", "m3", "m4", "m6"],
    "unsubscribe": [],
    "schemas": [[], [1, 2, 2, 3, 3, 3], *["IncompatibleSchemaException"] * 2, ["AVRO", "AVRO"], True, 1, 0],
    "administration": [10, ["m0", "m1"], 6, 10, 0, 0, True, "is terminated", False],
}
