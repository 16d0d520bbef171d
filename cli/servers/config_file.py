"""Keys of a server's ``--config`` file that have an effect, and the corresponding settings.

Other keys of Pulsar's files are in `pulsar_keys`; `server_file` reads both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...broker.listeners import check_host
from ...errors import InvalidConfig
from ..failure import Failure
from .config_key import Key
from .config_values import (
    advertised_host,
    bind_addresses,
    host_names,
    listeners,
    no_spark_remote,
    one_of,
    process_users,
    store_url,
    texts,
    words,
)
from .config_values import mebibytes as _mebibytes
from .config_values import number as _number
from .config_values import scaled as _scaled
from .config_values import settings as _settings
from .config_values import spark_settings as _spark_settings
from .config_values import text as _text
from .config_values import truth as _truth
from .config_values import whole as _whole
from .security_keys import AUTHORIZATION_KEYS, CLIENT_KEYS, SECURITY_KEYS, TLS_KEYS, WORKER_CLIENT_KEYS


def _read_names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    try:
        return host_names(value)
    except ValueError as error:
        raise Failure(f"invalid --allowed-hosts {value!r}: {error}") from error


def _read_users(ctx: click.Context, parameter: click.Parameter, value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    try:
        return process_users(value)
    except ValueError as error:
        raise Failure(f"invalid --process-users {value!r}: {error}") from error


def _read_host(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return check_host("--advertised-address", value)
    except InvalidConfig as error:
        raise Failure(str(error)) from error


def advertised_address_option(field: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option for the advertised address, for a field of a server's settings."""
    return click.option(
        "-a",
        "--advertised-address",
        field,
        metavar="HOST",
        callback=_read_host,
        help="Host name advertised to clients and servers, if it differs from the listen address (NAT, containers,"
        " TLS).",
    )


process_users_option = click.option(
    "--process-users",
    metavar="TENANT=USER[,…]",
    callback=_read_users,
    help="Run a tenant's functions as this system user ('*' for all other tenants); requires root (docs/isolation.md).",
)


allowed_hosts_option = click.option(
    "--allowed-hosts",
    metavar="NAME[,NAME]",
    callback=_read_names,
    help="Additional host names that requests to the web port may use (proxies, DNS) or originate from (web pages).",
)


BY_TLS_ONLY = "brokerClientTlsEnabled"
"""Key for brokers only: standalone's worker has no TLS, as its traffic remains on the machine."""

BROKER_KEYS: dict[str, Key] = {
    "bindAddress": Key("broker", "host", _text),
    "advertisedAddress": Key("broker", "advertised_address", advertised_host),
    "advertisedListeners": Key("broker", "advertised_listeners", listeners),
    "internalListenerName": Key("broker", "internal_listener", _text),
    "bindAddresses": Key("broker", "bind_addresses", bind_addresses),
    "brokerServicePort": Key("broker", "broker_port", _whole),
    "webServicePort": Key("broker", "web_port", _whole),
    "brokerServicePortTls": Key("broker", "broker_tls_port", _whole),
    "webServicePortTls": Key("broker", "web_tls_port", _whole),
    "webServiceAllowedHosts": Key("broker", "allowed_hosts", host_names),
    "tlsEnabled": Key("broker", "", _truth),
    "clusterName": Key("broker", "cluster", _text),
    "metadataStoreUrl": Key("broker", "metadata_store_url", store_url),
    "zookeeperServers": Key("broker", "", store_url),
    "zooKeeperOperationTimeoutSeconds": Key("broker", "", _whole),
    "configurationMetadataStoreUrl": Key("broker", "", store_url),
    "configurationStoreServers": Key("broker", "", store_url),
    "globalZookeeperServers": Key("broker", "", store_url),
    "metadataStoreOperationTimeoutSeconds": Key("broker", "metadata_timeout_s", _number),
    "maxMessageSize": Key("broker", "max_message_bytes", _whole),
    "keepAliveIntervalSeconds": Key("broker", "keep_alive_s", _number),
    "connectionLivenessCheckTimeoutMillis": Key("broker", "liveness_timeout_s", _scaled(0.001)),
    "allowAutoTopicCreation": Key("broker", "allow_auto_topic_creation", _truth),
    "allowAutoTopicCreationType": Key("broker", "", one_of("partitioned", "non-partitioned")),
    "defaultNumPartitions": Key("broker", "auto_topic_partitions", _whole),
    "allowAutoSubscriptionCreation": Key("broker", "allow_auto_subscription_creation", _truth),
    "acknowledgmentAtBatchIndexLevelEnabled": Key("broker", "acknowledge_inside_batches", _truth),
    "activeConsumerFailoverDelayTimeMillis": Key("broker", "failover_delay_s", _scaled(0.001)),
    "maxPendingPublishRequestsPerConnection": Key("broker", "max_pending_publishes", _whole),
    "dispatcherMaxReadBatchSize": Key("broker", "max_read_entries", _whole),
    "dispatcherMaxReadSizeBytes": Key("broker", "max_read_bytes", _whole),
    "dispatcherMaxRoundRobinBatchSize": Key("broker", "max_round_robin_entries", _whole),
    "maxUnackedMessagesPerConsumer": Key("broker", "max_unacked_per_consumer", _whole),
    "maxMessagePublishBufferSizeInMB": Key("broker", "publish_buffer_mb", _whole),
    "maxConsumerMetadataSize": Key("broker", "max_consumer_metadata_bytes", _whole),
    "maxUnackedMessagesPerSubscription": Key("broker", "max_unacked_per_subscription", _whole),
    "statsUpdateFrequencyInSecs": Key("broker", "stats_period_s", _number),
    "brokerServiceCompactionThresholdInBytes": Key("broker", "compaction_threshold_bytes", _whole),
    "brokerServiceCompactionMonitorIntervalInSeconds": Key("broker", "compaction_check_s", _number),
    "brokerDeduplicationEnabled": Key("broker", "deduplication", _truth),
    "brokerDeduplicationMaxNumberOfProducers": Key("broker", "deduplication_max_producers", _whole),
    "brokerDeduplicationEntriesInterval": Key("broker", "deduplication_snapshot_entries", _whole),
    "brokerDeduplicationSnapshotIntervalSeconds": Key("broker", "deduplication_snapshot_age_s", _number),
    "brokerDeduplicationSnapshotFrequencyInSeconds": Key("broker", "deduplication_check_s", _number),
    "brokerDeduplicationProducerInactivityTimeoutMinutes": Key("broker", "deduplication_inactivity_s", _scaled(60)),
    "defaultRetentionTimeInMinutes": Key("broker", "retention_minutes", _whole),
    "defaultRetentionSizeInMB": Key("broker", "retention_mb", _whole),
    "ttlDurationDefaultInSeconds": Key("broker", "message_ttl_s", _number),
    "messageExpiryCheckIntervalInMinutes": Key("broker", "message_expiry_check_s", _scaled(60)),
    "subscriptionExpirationTimeMinutes": Key("broker", "subscription_expiration_s", _scaled(60)),
    "subscriptionExpiryCheckIntervalInMinutes": Key("broker", "subscription_expiry_check_s", _scaled(60)),
    "brokerDeleteInactiveTopicsEnabled": Key("broker", "delete_inactive_topics", _truth),
    "brokerDeleteInactiveTopicsFrequencySeconds": Key("broker", "inactive_check_s", _number),
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": Key("broker", "inactive_after_s", _number),
    "brokerDeleteInactiveTopicsMode": Key("broker", "inactive_mode", _text),
    "brokerUnloadIdleTopicsAfterSeconds": Key("broker", "unload_idle_after_s", _number),
    "maxTenants": Key("broker", "max_tenants", _whole),
    "maxNamespacesPerTenant": Key("broker", "max_namespaces_per_tenant", _whole),
    "maxTopicsPerNamespace": Key("broker", "max_topics_per_namespace", _whole),
    "maxNumPartitionsPerPartitionedTopic": Key("broker", "max_partitions", _whole),
    "maxConcurrentLookupRequest": Key("broker", "max_lookups", _whole),
    "maxProducersPerTopic": Key("broker", "max_producers_per_topic", _whole),
    "maxConsumersPerTopic": Key("broker", "max_consumers_per_topic", _whole),
    "maxConsumersPerSubscription": Key("broker", "max_consumers_per_subscription", _whole),
    "maxSubscriptionsPerTopic": Key("broker", "max_subscriptions_per_topic", _whole),
    "brokerMaxConnections": Key("broker", "max_connections", _whole),
    "brokerMaxConnectionsPerIp": Key("broker", "max_connections_per_ip", _whole),
    "subscriptionTypesEnabled": Key("broker", "subscription_types", words),
    "subscriptionKeySharedUseConsistentHashing": Key("broker", "key_shared_consistent_hashing", _truth),
    "subscriptionKeySharedConsistentHashingReplicaPoints": Key("broker", "key_shared_points", _whole),
    "keySharedLookAheadMsgInReplayThresholdPerConsumer": Key("broker", "key_shared_look_ahead_per_consumer", _whole),
    "keySharedLookAheadMsgInReplayThresholdPerSubscription": Key("broker", "key_shared_look_ahead", _whole),
    "maxPublishRatePerTopicInMessages": Key("broker", "publish_rate_messages", _whole),
    "maxPublishRatePerTopicInBytes": Key("broker", "publish_rate_bytes", _whole),
    "brokerPublisherThrottlingMaxMessageRate": Key("broker", "broker_publish_messages", _whole),
    "brokerPublisherThrottlingMaxByteRate": Key("broker", "broker_publish_bytes", _whole),
    "dispatchThrottlingRateInMsg": Key("broker", "broker_dispatch_messages", _whole),
    "dispatchThrottlingRateInByte": Key("broker", "broker_dispatch_bytes", _whole),
    "dispatchThrottlingRatePerTopicInMsg": Key("broker", "topic_dispatch_messages", _whole),
    "dispatchThrottlingRatePerTopicInByte": Key("broker", "topic_dispatch_bytes", _whole),
    "dispatchThrottlingRatePerSubscriptionInMsg": Key("broker", "subscription_dispatch_messages", _whole),
    "dispatchThrottlingRatePerSubscriptionInByte": Key("broker", "subscription_dispatch_bytes", _whole),
    "subscribeThrottlingRatePerConsumer": Key("broker", "subscribe_rate", _whole),
    "subscribeRatePeriodPerConsumerInSecond": Key("broker", "subscribe_period_s", _whole),
    "backlogQuotaDefaultLimitBytes": Key("broker", "backlog_limit_bytes", _whole),
    "backlogQuotaDefaultLimitSecond": Key("broker", "backlog_limit_s", _whole),
    "backlogQuotaDefaultRetentionPolicy": Key("broker", "backlog_policy", _text),
    "backlogQuotaCheckIntervalInSeconds": Key("broker", "backlog_check_s", _number),
    "delayedDeliveryEnabled": Key("broker", "delayed_delivery", _truth),
    "delayedDeliveryTickTimeMillis": Key("broker", "delayed_delivery_tick_ms", _number),
    "delayedDeliveryMaxDelayInMillis": Key("broker", "delayed_delivery_max_ms", _whole),
    "schemaCompatibilityStrategy": Key("broker", "schema_strategy", _text),
    "systemTopicSchemaCompatibilityStrategy": Key("broker", "system_schema_strategy", _text),
    "isAllowAutoUpdateSchemaEnabled": Key("broker", "allow_auto_update_schema", _truth),
    "isSchemaValidationEnforced": Key("broker", "enforce_schema_validation", _truth),
    BY_TLS_ONLY: Key("broker", "asks_by_tls_only", _truth),
    "encryptionRequireOnProducer": Key("broker", "encryption_required", _truth),
    "managedLedgerMaxEntriesPerLedger": Key("storage", "max_ledger_entries", _whole),
    "managedLedgerMaxSizePerLedgerMbytes": Key("storage", "max_ledger_bytes", _mebibytes),
    "managedLedgerMaxLedgerRolloverTimeMinutes": Key("storage", "max_ledger_age_s", _scaled(60)),
    "managedLedgerCacheSizeMB": Key("storage", "tail_cache_bytes", _mebibytes),
    "journalMaxSizeMB": Key("storage", "journal_file_bytes", _mebibytes),
    "journalSyncDelayMs": Key("storage", "sync_delay_s", _scaled(0.001)),
    **TLS_KEYS,
    **SECURITY_KEYS,
    **AUTHORIZATION_KEYS,
    **CLIENT_KEYS,
}
"""Keys of broker.conf and bookkeeper.conf. ``journalSyncDelayMs`` is not Pulsar's: it delays syncs for benchmarks."""


STATE_KEYS: dict[str, Key] = {
    "bindAddress": Key("state", "host", _text),
    "storageserver.grpc.port": Key("state", "port", _whole),
    "stateStorageTokenSecretKey": Key("state", "key_file", _text),
    **TLS_KEYS,
}
"""Keys of bookkeeper.conf for its table service, and TLS keys with the names used for brokers."""

WORKER_KEYS: dict[str, Key] = {
    "workerId": Key("worker", "worker_id", _text),
    "bindAddress": Key("worker", "host", _text),
    "workerHostname": Key("worker", "advertised_host", advertised_host),
    "workerPort": Key("worker", "worker_port", _whole),
    "workerPortTls": Key("worker", "worker_tls_port", _whole),
    "tlsEnabled": Key("worker", "", _truth),
    "useTls": Key("worker", "", _truth),
    "webServiceAllowedHosts": Key("worker", "allowed_hosts", host_names),
    "pulsarServiceUrl": Key("worker", "service_url", _text),
    "pulsarWebServiceUrl": Key("worker", "admin_url", _text),
    "pulsarFunctionsNamespace": Key("worker", "functions_namespace", _text),
    "pulsarFunctionsCluster": Key("worker", "cluster", _text),
    "functionMetadataTopicName": Key("worker", "metadata_topic", _text),
    "functionAssignmentTopicName": Key("worker", "assignments_topic", _text),
    "clusterCoordinationTopicName": Key("worker", "coordination_topic", _text),
    "additionalEnabledFunctionsUrlPatterns": Key("worker", "function_url_patterns", texts),
    "additionalEnabledConnectorUrlPatterns": Key("worker", "connector_url_patterns", texts),
    "stateStorageServiceUrl": Key("worker", "state_url", _text),
    "stateStorageTokenSecretKey": Key("worker", "state_key_file", _text),
    "sparkMaster": Key("worker", "spark_master", _text),
    "sparkRemote": Key("worker", "", no_spark_remote),
    "sparkDriverMemory": Key("worker", "spark_driver_memory", _text),
    "sparkSettings": Key("worker", "spark_settings", _spark_settings),
    "sparkStartAhead": Key("worker", "spark_starts_ahead", _truth),
    "sparkClassArchive": Key("worker", "spark_class_archive", _truth),
    "sparkIdleTimeoutSec": Key("worker", "spark_idle_s", _number),
    "secretsProviderClassName": Key("worker", "secrets_provider", _text),
    "secretsProviderConfig": Key("worker", "secrets_config", _settings),
    "processRuntimeUsers": Key("worker", "process_users", process_users),
    "failureCheckFreqMs": Key("worker", "failure_check_ms", _whole),
    "instanceLivenessCheckFreqMs": Key("worker", "liveness_check_ms", _whole),
    "rescheduleTimeoutMs": Key("worker", "reschedule_timeout_ms", _whole),
    "rebalanceCheckFreqSec": Key("worker", "rebalance_check_s", _number),
    "topicCompactionFrequencySec": Key("worker", "compaction_s", _number),
    "initialBrokerReconnectMaxRetries": Key("worker", "broker_wait_s", _number),
    **TLS_KEYS,
    **SECURITY_KEYS,
    **AUTHORIZATION_KEYS,
    **WORKER_CLIENT_KEYS,
}
"""Keys of functions_worker.yml that have an effect; ``processRuntimeUsers`` and ``spark…`` are not Pulsar's."""

ELSEWHERE = (
    "host",
    "advertised_host",
    "allowed_hosts",
    "service_url",
    "admin_url",
    "cluster",
    "broker_wait_s",
    "coordination_topic",
    "state_url",
    "worker_tls_port",
)

STANDALONE_KEYS: dict[str, Key] = (
    {name: key for name, key in BROKER_KEYS.items() if name != BY_TLS_ONLY}
    | {name: key for name, key in WORKER_KEYS.items() if key.record == "worker" and key.field not in (*ELSEWHERE, "")}
    | {"sparkRemote": WORKER_KEYS["sparkRemote"]}
    | {name: key for name, key in STATE_KEYS.items() if key.field == "port"}
)
"""Keys of standalone, which sets its worker's address, broker, state store and cluster itself."""
