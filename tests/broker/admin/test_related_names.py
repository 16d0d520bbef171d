"""Topics whose names are prefixes, partitions or twins of each other: deleting one leaves the records of the others."""

from __future__ import annotations

import itertools

import pytest
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

SCHEMA = {"type": "STRING", "schema": "", "properties": {}}
RETENTION = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5}
PLAIN = (
    "persistent://public/default/orders",
    "persistent://public/default/orders-partition-0",
    "persistent://public/default/orders-partition-0-partition-1",
    "persistent://public/default/order",
    "persistent://public/default/-partition-0",
    "non-persistent://public/default/orders",
)


def url(name: str) -> str:
    return f"/admin/v2/{name.replace('://', '/')}"


async def create(broker: RunningBroker, name: str) -> None:
    await broker.service.topic(parse_topic_name(name), create=True)
    await broker.namespaces.set_properties(parse_topic_name(name), {"of": name})
    await broker.http.post(f"{url(name)}/permissions/role", json=["consume"])


async def set_policy(broker: RunningBroker, name: str) -> bool:
    return (await broker.http.post(f"{url(name)}/retention", json=RETENTION)).is_success


async def records(broker: RunningBroker, name: str) -> tuple[object, ...]:
    topic = parse_topic_name(name)
    granted = broker.namespaces.policies("public/default")["auth_policies"]["destination_auth"]
    policies = broker.namespaces.topic_policies(topic) if topic.partition < 0 else None
    return broker.namespaces.properties(topic), granted.get(name), policies


@pytest.mark.parametrize(("deleted", "kept"), list(itertools.permutations(PLAIN, 2)))
async def test_deleting_a_topic_leaves_the_records_of_another(deleted: str, kept: str, broker: RunningBroker) -> None:
    for name in (deleted, kept):
        await create(broker, name)
        await set_policy(broker, name)
    before = await records(broker, kept)
    assert (await broker.http.delete(f"{url(deleted)}?force=true")).status_code == 204
    assert await records(broker, kept) == before
    assert broker.service.has_topic(parse_topic_name(kept))
    assert not broker.service.has_topic(parse_topic_name(deleted))
    assert await records(broker, deleted) in (({}, None, {}), ({}, None, None))


async def test_retention_outlives_a_plain_topic_that_is_named_like_a_partition(broker: RunningBroker) -> None:
    orders, like_a_partition = PLAIN[:2]
    await create(broker, orders)
    await create(broker, like_a_partition)
    assert await set_policy(broker, orders)
    assert (await broker.http.delete(url(like_a_partition))).status_code == 204
    assert (await broker.http.get(f"{url(orders)}/retention")).json() == RETENTION


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_twins_share_their_schemas_until_the_last_is_deleted(
    domain: str, is_partitioned: bool, broker: RunningBroker
) -> None:
    other = {"persistent": "non-persistent", "non-persistent": "persistent"}[domain]
    kept, deleted = f"{domain}://public/default/orders", f"{other}://public/default/orders"
    if is_partitioned:
        await broker.http.put(f"{url(kept)}/partitions", json=2)
    else:
        await create(broker, kept)
    await create(broker, deleted)
    schema = "/admin/v2/schemas/public/default/orders/schema"
    assert (await broker.http.post(schema, json=SCHEMA)).status_code == 200
    assert (await broker.http.delete(url(deleted))).status_code == 204
    assert (await broker.http.get(schema)).status_code == 200
    path = f"{url(kept)}/partitions" if is_partitioned else url(kept)
    assert (await broker.http.delete(path)).status_code == 204
    assert (await broker.http.get(schema)).status_code == 404


async def test_deleting_a_partitioned_topic_leaves_the_schemas_of_its_twin(broker: RunningBroker) -> None:
    orders, twin = PLAIN[0], PLAIN[-1]
    await broker.http.put(f"{url(orders)}/partitions", json=2)
    await broker.http.put(f"{url(twin)}/partitions", json=2)
    schema = "/admin/v2/schemas/public/default/orders/schema"
    assert (await broker.http.post(schema, json=SCHEMA)).status_code == 200
    assert (await broker.http.delete(f"{url(twin)}/partitions")).status_code == 204
    assert (await broker.http.get(schema)).status_code == 200
