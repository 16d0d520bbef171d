"""Statistics of partitions put together: sums, latest, earliest, means, and who is merged with whom."""

from __future__ import annotations

from typing import Any

from magnetar.broker.admin.topics.partitioned_stats import aggregate


def partition(**fields: Any) -> dict[str, Any]:
    return {"msgInCounter": 0, "publishers": [], "subscriptions": {}, "replication": {}, "ownerBroker": "b"} | fields


def test_counters_are_summed_and_owner_and_deduplication_left_out() -> None:
    merged = aggregate([partition(msgInCounter=2, deduplicationStatus="Disabled"), partition(msgInCounter=3)])
    assert merged == {"msgInCounter": 5, "publishers": [], "subscriptions": {}, "replication": {}}


def test_limits_ages_times_and_means_have_their_own_rules() -> None:
    merged = aggregate(
        [
            partition(
                backlogQuotaLimitSize=1,
                oldestBacklogMessageAgeSeconds=9,
                oldestBacklogMessageSubscriptionName="slow",
                averageMsgSize=10.0,
                earliestMsgPublishTimeInBacklogs=0,
                topicCreationTimeStamp=50,
                lastPublishTimeStamp=7,
                msgChunkPublished=False,
                compaction={"lastCompactionRemovedEventCount": 1},
            ),
            partition(
                backlogQuotaLimitSize=2,
                oldestBacklogMessageAgeSeconds=3,
                oldestBacklogMessageSubscriptionName="fast",
                averageMsgSize=20.0,
                earliestMsgPublishTimeInBacklogs=40,
                topicCreationTimeStamp=30,
                lastPublishTimeStamp=8,
                msgChunkPublished=True,
                compaction={"lastCompactionRemovedEventCount": 2},
            ),
        ]
    )
    assert merged["backlogQuotaLimitSize"] == 2
    assert merged["oldestBacklogMessageAgeSeconds"] == 9
    assert merged["oldestBacklogMessageSubscriptionName"] == "slow"
    assert merged["averageMsgSize"] == 15.0
    assert merged["earliestMsgPublishTimeInBacklogs"] == 40
    assert merged["topicCreationTimeStamp"] == 30
    assert merged["lastPublishTimeStamp"] == 8
    assert merged["msgChunkPublished"] is True
    assert merged["compaction"] == {"lastCompactionRemovedEventCount": 3}


def test_the_oldest_message_of_partitions_is_named_by_its_own() -> None:
    ages = [partition(oldestBacklogMessageAgeSeconds=-1), partition(oldestBacklogMessageAgeSeconds=0)]
    assert "oldestBacklogMessageSubscriptionName" not in aggregate(ages)
    ages[1]["oldestBacklogMessageSubscriptionName"] = "s"
    assert aggregate(ages)["oldestBacklogMessageSubscriptionName"] == "s"


def test_subscriptions_merge_by_name_and_their_clients_by_place() -> None:
    def consumer(name: str, permits: int) -> dict[str, Any]:
        return {"consumerName": name, "availablePermits": permits, "address": "/a", "connectedSince": "t"}

    def subscription(backlog: int, consumers: list[dict[str, Any]], active: str) -> dict[str, Any]:
        return {"msgBacklog": backlog, "type": "Failover", "activeConsumerName": active, "consumers": consumers}

    merged = aggregate(
        [
            partition(subscriptions={"a": subscription(1, [consumer("c1", 10), consumer("c2", 20)], "c1")}),
            partition(subscriptions={"a": subscription(2, [consumer("c1", 30)], "c2"), "b": subscription(5, [], "x")}),
        ]
    )["subscriptions"]
    assert merged["a"] == {
        "msgBacklog": 3,
        "type": "Failover",
        "consumers": [
            {"consumerName": "c1", "availablePermits": 40},
            {"consumerName": "c2", "availablePermits": 20},
        ],
    }
    assert merged["b"]["msgBacklog"] == 5


def test_the_parts_are_left_as_they_were() -> None:
    parts = [partition(subscriptions={"a": {"msgBacklog": 1, "consumers": []}})]
    aggregate(parts)["subscriptions"]["a"]["msgBacklog"] = 99
    assert parts[0]["subscriptions"]["a"]["msgBacklog"] == 1
