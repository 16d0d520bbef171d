"""``/admin/v2/brokers``, ``/admin/v2/broker-stats``, ``/lookup/v2``: this broker is the cluster's only one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

from starlette.responses import Response

from ... import __version__
from ...errors import InvalidConfig
from ...metadata.store.url import parse_store_url
from ...tasks import Slices
from ...web.answers import Refused, as_json, as_text, encode, not_supported, nothing, refusing
from ...web.call import caller_of
from ...wire.payload import seal
from ...wire.pulsar_api_pb2 import MessageMetadata
from ...wire.topic_name import parse_topic_name
from ..policies import dynamic
from ..policies.policies import bundle_of
from .call import Call
from .dynamic_settings import OTHER_DYNAMIC
from .routing import Routes
from .topics.lookup import boundaries
from .topics.stats import encoded_stats, read_entry, sliced_stats

_B = "/admin/v2/brokers"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
HEALTH_TOPIC = "persistent://pulsar/system/healthcheck"
_NO_METADATA_SERVICE = (
    "none: this broker stores its metadata in SQLite, but Apache Pulsar's functions worker requires ZooKeeper; set"
    " metadataStoreUrl=zk:host:2181 for the broker, or use magnetar worker"
)
HEALTH_TIMEOUT_S = 10.0
PULSAR_VERSION = "4.0.7"
VERSION = f"{PULSAR_VERSION}+magnetar.{__version__}"
"""The supported Pulsar version, with Magnetar's version as semantic-versioning build metadata."""


async def _check_backlogs(call: Call) -> None:
    await call.broker.check_backlogs()


def _ready(call: Call) -> Response:
    if not call.broker.is_started:
        raise Refused(503, "the broker is starting or stopping")
    return as_text("ok")


async def _health(call: Call) -> Response:
    """Return ok after writing an entry to disk and reading it back."""
    call.option("topicVersion", ("V1", "V2"), "V2")
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_S):
            topic = await call.broker.topic(parse_topic_name(HEALTH_TOPIC), create=True)
            now_ms = call.broker.now_ms()
            metadata = MessageMetadata(producer_name="healthcheck", sequence_id=0, publish_time=now_ms)
            position = await topic.publish(seal(metadata, b"ok"), 1, now_ms)
            entry = await read_entry(topic, position)
    except TimeoutError as error:
        raise Refused(
            500, f"timed out after {HEALTH_TIMEOUT_S:.0f} s storing a message; the disk may be stalled"
        ) from error
    if entry is None or entry.position != position:
        raise Refused(500, f"cannot read back the message stored at {position.ledger_id}:{position.entry_id}")
    return as_text("ok")


def _owned_namespaces(call: Call) -> Response:
    if call.text("broker") != call.host:
        raise Refused(404, f"Broker id '{call.text('broker')}' not found in available brokers.")
    owned = {
        f"{namespace}/{low}_{high}"
        for tenant in call.namespaces.tenants()
        for namespace in call.namespaces.namespaces(tenant)
        for low, high in itertools.pairwise(boundaries(call, namespace))
    }
    state = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return as_json(dict.fromkeys(sorted(owned), state))


def _internal_configuration(call: Call) -> Response:
    """Return the address of the metadata store, if other processes can reach it.

    Apache Pulsar's functions worker treats any value here as a ZooKeeper ensemble and tries to connect forever. It
    reads `bookkeeperMetadataServiceUri` first, and if the value is not a URI it stops and logs the value as the reason.
    """
    url = call.broker.config.metadata_store_url
    found: dict[str, object] = {"ledgersRootPath": "/ledgers"}
    if parse_store_url(url).servers:
        names = ("zookeeperServers", "configurationStoreServers", "metadataStoreUrl", "configurationMetadataStoreUrl")
        found |= dict.fromkeys(names, url)
    else:
        found["bookkeeperMetadataServiceUri"] = _NO_METADATA_SERVICE
    if call.broker.state_store_url is not None:
        if (state_url := call.state_store_url) is None:
            raise Refused(503, "the state store is starting: retry in a few seconds")
        # Pulsar omits the broker's address. `localrun` compares it with its own --broker-service-url.
        found |= {"stateStorageServiceUrl": state_url, "brokerServiceUrl": call.broker_url}
        if call.broker_tls_url:
            found["brokerServiceUrlTls"] = call.broker_tls_url
    return as_json(found)


def _runtime_configuration(call: Call) -> Response:
    """Return the effective settings, including dynamic ones."""
    config = call.namespaces.config
    return as_json(
        dynamic.shown(config)
        | {
            "acknowledgmentAtBatchIndexLevelEnabled": dynamic.as_text(config.acknowledge_inside_batches),
            "activeConsumerFailoverDelayTimeMillis": str(round(config.failover_delay_s * 1000)),
            "brokerDeduplicationEnabled": dynamic.as_text(config.deduplication),
            "clusterName": call.namespaces.cluster_name,
            "functionsWorkerEnabled": dynamic.as_text(call.is_worker_enabled),
            "keepAliveIntervalSeconds": str(round(config.keep_alive_s)),
            "maxMessageSize": str(config.max_message_bytes),
            "maxUnackedMessagesPerConsumer": str(config.max_unacked_per_consumer),
            "maxUnackedMessagesPerSubscription": str(config.max_unacked_per_subscription),
            "statsUpdateFrequencyInSecs": str(round(config.stats_period_s)),
        }
    )


async def _change_setting(call: Call) -> Response:
    name = call.text("name")
    if name not in dynamic.NAMES:
        if name in OTHER_DYNAMIC:
            raise not_supported(f"changing {name} at run time", "set it in broker.conf if the setting is listed there")
        raise Refused(412, "Can't update non-dynamic configuration")
    try:
        await call.namespaces.change_setting(name, call.text("value"))
    except InvalidConfig as error:
        raise Refused(412, str(error)) from error
    return nothing()


async def _reset_setting(call: Call) -> Response:
    name = call.text("name")
    if name in dynamic.NAMES:
        await call.namespaces.change_setting(name, None)
    elif name not in OTHER_DYNAMIC:  # settings that were never changed
        raise Refused(412, "Can't delete non-dynamic configuration")
    return nothing()


async def _topics(call: Call) -> Response:
    """Return the statistics of loaded topics by namespace, bundle and domain."""
    found: dict[tuple[str, str], list[bytes]] = {}
    async with call.broker.reports.turn(caller_of(call.request.scope)):
        slices = Slices()
        for topic in tuple(call.broker.topics.values()):
            name = topic.name
            if str(name) != HEALTH_TOPIC:
                shown = found.setdefault((name.namespace_name, name.domain), [])
                stats = await encoded_stats(await sliced_stats(topic, slices), slices)
                shown.append(encode(str(name)) + b":" + b"".join(stats))
            await slices.pause()
    namespaces: dict[str, list[bytes]] = {}
    for (namespace, domain), topics in found.items():
        namespaces.setdefault(namespace, []).append(encode(domain) + b":" + _object(topics))
    tree = (
        encode(namespace) + b":" + _object([encode("0x00000000_0xffffffff") + b":" + _object(domains)])
        for namespace, domains in namespaces.items()
    )
    return Response(_object(tree), media_type="application/json")


def _object(members: Iterable[bytes]) -> bytes:
    return b"{" + b",".join(members) + b"}"


def _lookup(call: Call) -> Response:
    name = call.require_topic_namespace()
    known = call.namespaces.partitions(name.base) or call.broker.has_topic(name)
    if not known and not call.namespaces.auto_topic_creation(name).is_allowed:
        raise Refused(404, f"Topic not found {name}")
    found = {
        "brokerUrl": call.broker_url,
        "httpUrl": call.web_url,
        "nativeUrl": call.broker_url,
        "brokerUrlSsl": call.broker_tls_url,  # always set: the C++ client requires one of two spellings
    }
    if call.broker_tls_url:
        found["brokerUrlTls"] = call.broker_tls_url
    if call.web_tls_url:
        found["httpUrlTls"] = call.web_tls_url
    return as_json(found)


def _bundle(call: Call) -> Response:
    name = call.topic
    if not call.namespaces.has_namespace(name.namespace_name):
        return as_text("0x00000000_0xffffffff")
    return as_text(bundle_of(boundaries(call, name.namespace_name), str(name)))


_NO_TRANSACTIONS = refusing(Refused(503, "This Broker is not configured with transactionCoordinatorEnabled=true."))
ROUTES: Routes = (
    ("GET", _B, lambda call: as_json([call.host])),
    ("GET", f"{_B}/leaderBroker", lambda call: as_json({"serviceUrl": call.web_url, "brokerId": call.host})),
    ("GET", f"{_B}/version", lambda _: as_text(VERSION)),
    ("GET", f"{_B}/ready", _ready),
    ("GET", f"{_B}/health", _health),
    ("GET", f"{_B}/internal-configuration", _internal_configuration),
    ("GET", f"{_B}/configuration", lambda _: as_json(sorted(dynamic.NAMES))),
    ("GET", f"{_B}/configuration/values", lambda call: as_json(call.namespaces.changed_settings())),
    ("GET", f"{_B}/configuration/runtime", _runtime_configuration),
    ("POST", f"{_B}/configuration/{{name}}/{{value}}", _change_setting),
    ("DELETE", f"{_B}/configuration/{{name}}", _reset_setting),
    ("GET", f"{_B}/backlog-quota-check", _check_backlogs),
    ("GET", f"{_B}/{{cluster}}", lambda call: as_json([call.host])),
    ("GET", f"{_B}/{{cluster}}/{{broker}}/ownedNamespaces", _owned_namespaces),
    ("GET", "/admin/v2/broker-stats/topics", _topics),
    ("GET", "/admin/v2/broker-stats/load-report", lambda _: None),
    ("GET", "/admin/v3/transactions/{what:path}", _NO_TRANSACTIONS),
    ("POST", "/admin/v3/transactions/{what:path}", _NO_TRANSACTIONS),
    ("GET", _LOOKUP, _lookup),
    ("GET", f"{_LOOKUP}/bundle", _bundle),
)
