"""Details of Apache Pulsar that official clients rely on: the same on our broker and on an Apache Pulsar.

`java/Details.java`, `go/details/main.go` and `python_details.py` play them as the programs of scenarios.py play
scenarios. Each has its own topic, and its own namespace where it sets policies:

- non_durable: what an Earliest and a Latest non-durable subscription receive of three messages sent before and one sent
  after subscribing, and the subscriptions that are left.
- largest_message: how many bytes below maxMessageSize the largest payload is, not counting the producer's name, and
  whether that generated name has Apache Pulsar's form. All clients count the metadata.
- topic_type: an auto-topic-creation override with the topic type "" as returned, whether a topic is then created, the
  refusal of such an override that allows creation, and whether a topic is created without an override.
- partition_index: of the first and the last message id of a partition, and of a topic without partitions.
- cluster_slash: URLs of a cluster that end with a slash.
- anti_affinity: whether the group is returned and lists its namespace, and what is left after its removal.
- resource_groups: rates after an update, whether the group is listed, and assigned to a namespace; the refusals of an
  absent group, of the removal of a group in use, and after its removal.
- subscription_properties: at creation, after a change, on a partition, and after their removal.
- dynamic_settings: whether some are known, changed and reset, and the refusal of an unknown one.
- broker_stats: whether metrics, beans, topics and both allocators have their shapes.
- replicator_rates: of a namespace and of a topic.
- bookie_affinity: both groups, and that none is returned, and no error, after their removal.
- peek_absent: two messages, peeked on a subscription that does not exist.
"""

from __future__ import annotations

from typing import Any

EXPECTED: dict[str, Any] = {
    "non_durable": [["m0", "m1", "m2", "m3"], ["m3"], []],
    "largest_message": [16, True],
    "topic_type": [False, "", "refused", 412, "created"],
    "partition_index": [2, 2, -1, -1],
    "cluster_slash": ["http://127.0.0.1:8080/", "pulsar://127.0.0.1:6650/"],
    "anti_affinity": [True, True, ""],
    "resource_groups": [2000, 100_000, 3000, True, True, 412, 412, 404],
    "subscription_properties": [{"a": "b"}, {"c": "d"}, {"c": "d"}, {}],
    "dynamic_settings": [True, True, True, 412],
    "broker_stats": [True, True, True, True, True],
    "replicator_rates": [[12, 22, 1], [13, 23, 2]],
    "bookie_affinity": ["one", "two", 0],
    "peek_absent": ["m0", "m1"],
}
