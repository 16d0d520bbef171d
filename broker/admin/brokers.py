"""``/admin/v2/brokers``, ``/admin/v2/broker-stats``: the only broker of the cluster."""

from __future__ import annotations

import asyncio
import itertools
from importlib.metadata import version

from starlette.responses import Response

from ...web.answers import Refused, as_json, as_text, done, not_supported
from ...wire.payload import seal
from ...wire.pulsar_api_pb2 import MessageMetadata
from ...wire.topic_name import parse_topic_name
from .call import Call
from .routing import Routes
from .topics.stats import read_entry

_B = "/admin/v2/brokers"
HEALTH_TOPIC = "persistent://pulsar/system/healthcheck"
HEALTH_TIMEOUT_S = 10.0
_DEFAULT_QUOTA = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100000.0,
    "bandwidthOut": 300000.0,
    "memory": 80.0,
    "dynamic": True,
}


async def _list(call: Call) -> Response:
    return as_json([call.host])


async def _leader(call: Call) -> Response:
    return as_json({"serviceUrl": f"http://{call.host}", "brokerId": call.host})


async def _version(_: Call) -> Response:
    return as_text(version("magnetar"))


async def _ready(call: Call) -> Response:
    if not call.broker.started:
        raise Refused(503, "the broker is starting or stopping")
    return as_text("ok")


async def _health(call: Call) -> Response:
    """Answer ok once an entry has gone to disk and come back."""
    call.option("topicVersion", ("V1", "V2"), "V2")
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            topic = await call.broker.topic(parse_topic_name(HEALTH_TOPIC), create=True)
            now_ms = call.broker.now_ms()
            metadata = MessageMetadata(producer_name="healthcheck", sequence_id=0, publish_time=now_ms)
            position = await topic.publish(seal(metadata, b"ok"), 1, now_ms)
            entry = await read_entry(topic, position)
    except TimeoutError as error:
        raise Refused(500, f"a message was not stored within {HEALTH_TIMEOUT_S:.0f} s; is the disk stalled?") from error
    if entry is None or entry.position != position:
        raise Refused(500, f"the message stored at {position.ledger_id}:{position.entry_id} cannot be read back")
    return as_text("ok")


async def _owned_namespaces(call: Call) -> Response:
    if call.text("broker") != call.host:
        raise Refused(404, f"Broker id '{call.text('broker')}' not found in available brokers.")
    owned = {
        f"{namespace}/{low}_{high}"
        for tenant in call.namespaces.tenants()
        for namespace in call.namespaces.namespaces(tenant)
        for low, high in _bundles(call, namespace)
    }
    state = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return as_json(dict.fromkeys(sorted(owned), state))


def _bundles(call: Call, namespace: str) -> list[tuple[str, str]]:
    boundaries = call.namespaces.policies(namespace)["bundles"]["boundaries"]
    return list(itertools.pairwise(boundaries))


async def _internal_configuration(call: Call) -> Response:
    config = call.broker.config
    url = config.metadata_store_url or f"sqlite:{config.data_dir}"
    return as_json(
        {
            "zookeeperServers": url,
            "configurationStoreServers": url,
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": "/ledgers",
        }
    )


async def _runtime_configuration(call: Call) -> Response:
    config = call.broker.config
    return as_json(
        {
            "acknowledgmentAtBatchIndexLevelEnabled": _java(config.acknowledge_inside_batches),
            "activeConsumerFailoverDelayTimeMillis": str(round(config.failover_delay_s * 1000)),
            "allowAutoSubscriptionCreation": _java(config.allow_auto_subscription_creation),
            "allowAutoTopicCreation": _java(config.allow_auto_topic_creation),
            "allowAutoTopicCreationType": "partitioned" if config.auto_topic_partitions else "non-partitioned",
            "clusterName": call.namespaces.cluster_name,
            "defaultNumPartitions": str(config.auto_topic_partitions or 1),
            "functionsWorkerEnabled": _java(call.backend.is_worker_enabled),
            "keepAliveIntervalSeconds": str(round(config.keep_alive_s)),
            "maxMessageSize": str(config.max_message_bytes),
            "maxUnackedMessagesPerConsumer": str(config.max_unacked_per_consumer),
            "maxUnackedMessagesPerSubscription": str(config.max_unacked_per_subscription),
            "statsUpdateFrequencyInSecs": str(round(config.stats_period_s)),
        }
    )


def _java(value: bool) -> str:
    return "true" if value else "false"


async def _no_dynamic_configuration(_: Call) -> Response:
    return as_json([])


async def _no_configuration_values(_: Call) -> Response:
    return as_json({})


async def _refuse_update(_: Call) -> Response:
    raise Refused(412, "Can't update non-dynamic configuration")


async def _refuse_delete(_: Call) -> Response:
    raise Refused(412, "Can't delete non-dynamic configuration")


async def _backlog_quota_check(_: Call) -> Response:
    return done()  # no quotas are set: setting one is refused


async def _topics(call: Call) -> Response:
    """Answer the statistics of loaded topics by namespace, bundle and domain."""
    tree: dict[str, dict[str, dict[str, dict[str, object]]]] = {}
    for topic in tuple(call.broker.topics.values()):
        name = topic.name
        if str(name) == HEALTH_TOPIC:
            continue
        bundles = tree.setdefault(name.namespace_name, {})
        domains = bundles.setdefault("0x00000000_0xffffffff", {})
        domains.setdefault(name.domain, {})[str(name)] = topic.stats()
    return as_json(tree)


async def _no_load_report(_: Call) -> Response:
    return done()


async def _resource_quotas(_: Call) -> Response:
    return as_json(_DEFAULT_QUOTA)


async def _refuse_resource_quotas(_: Call) -> Response:
    raise not_supported("a resource quota", "there is no load manager that would act on it")


async def _no_transactions(_: Call) -> Response:
    raise Refused(503, "This Broker is not configured with transactionCoordinatorEnabled=true.")


ROUTES: Routes = (
    ("GET", _B, _list),
    ("GET", f"{_B}/leaderBroker", _leader),
    ("GET", f"{_B}/version", _version),
    ("GET", f"{_B}/ready", _ready),
    ("GET", f"{_B}/health", _health),
    ("GET", f"{_B}/internal-configuration", _internal_configuration),
    ("GET", f"{_B}/configuration", _no_dynamic_configuration),
    ("GET", f"{_B}/configuration/values", _no_configuration_values),
    ("GET", f"{_B}/configuration/runtime", _runtime_configuration),
    ("POST", f"{_B}/configuration/{{name}}/{{value}}", _refuse_update),
    ("DELETE", f"{_B}/configuration/{{name}}", _refuse_delete),
    ("GET", f"{_B}/backlog-quota-check", _backlog_quota_check),
    ("GET", f"{_B}/{{cluster}}", _list),
    ("GET", f"{_B}/{{cluster}}/{{broker}}/ownedNamespaces", _owned_namespaces),
    ("GET", "/admin/v2/broker-stats/topics", _topics),
    ("GET", "/admin/v2/broker-stats/load-report", _no_load_report),
    ("GET", "/admin/v2/resource-quotas", _resource_quotas),
    ("POST", "/admin/v2/resource-quotas", _refuse_resource_quotas),
    ("GET", "/admin/v3/transactions/{what:path}", _no_transactions),
    ("POST", "/admin/v3/transactions/{what:path}", _no_transactions),
)
