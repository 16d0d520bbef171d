"""The ``--config`` file of a server: YAML with Pulsar's key names, each used or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from ...errors import InvalidConfig
from ...web.same_site import host_name
from ..failure import Failure, nearest
from ..settings import read_yaml

MIB = 1024 * 1024


class Key(NamedTuple):
    """What a key of the file sets.

    Attributes:
        record: which settings it belongs to: ``broker``, ``storage``, ``worker`` or ``state``.
        field: field of that record; empty if the value is only checked.
        read: turns the file's value into the field's; raises ValueError.
    """

    record: str
    field: str
    read: Callable[[Any], Any]


def _read_as(what: str, *kinds: type) -> Callable[[Any], Any]:
    """Read a value of one of these types; an empty text is none, and neither is a truth value for a number."""

    def read(value: Any) -> Any:
        if type(value) not in kinds or value == "":
            raise ValueError(f"{what} is expected")
        return value

    return read


_whole = _read_as("a whole number", int)
_any_number = _read_as("a number", int, float)
_truth = _read_as("true or false", bool)
_text = _read_as("a text", str)


def _number(value: Any) -> float:
    return float(_any_number(value))


def host_names(value: Any) -> tuple[str, ...]:
    """Return names of hosts from a list, or from one text with commas between; raises ValueError."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ValueError("names of hosts are expected, without ports, such as [magnetar.example.com]")
    try:
        return tuple(host_name(name) for name in given)
    except InvalidConfig as error:
        raise ValueError(str(error)) from error


def _read_names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    try:
        return host_names(value)
    except ValueError as error:
        raise Failure(f"--allowed-hosts {value!r} is refused: {error}") from error


allowed_hosts_option = click.option(
    "--allowed-hosts",
    metavar="NAME[,NAME]",
    callback=_read_names,
    help="Further names of this server in requests to its web port (proxies, DNS), and of pages that may ask.",
)


def _spark_settings(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str | int | float) for one in value.values()):
        raise ValueError("names of Spark's settings with their values are expected, such as spark.cores.max: 4")
    # Spark writes truth as YAML does.
    return {str(name): str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}


def _scaled(factor: float) -> Callable[[Any], float]:
    return lambda value: _number(value) * factor


def _mebibytes(value: Any) -> int:
    return int(_whole(value) * MIB)


BROKER_KEYS: dict[str, Key] = {
    "bindAddress": Key("broker", "host", _text),
    "brokerServicePort": Key("broker", "broker_port", _whole),
    "webServicePort": Key("broker", "web_port", _whole),
    "webServiceAllowedHosts": Key("broker", "allowed_hosts", host_names),
    "clusterName": Key("broker", "cluster", _text),
    "metadataStoreUrl": Key("broker", "metadata_store_url", _text),
    "metadataStoreOperationTimeoutSeconds": Key("broker", "metadata_timeout_s", _number),
    "maxMessageSize": Key("broker", "max_message_bytes", _whole),
    "keepAliveIntervalSeconds": Key("broker", "keep_alive_s", _number),
    "connectionLivenessCheckTimeoutMillis": Key("broker", "liveness_timeout_s", _scaled(0.001)),
    "allowAutoTopicCreation": Key("broker", "allow_auto_topic_creation", _truth),
    "defaultNumPartitions": Key("broker", "auto_topic_partitions", _whole),
    "allowAutoSubscriptionCreation": Key("broker", "allow_auto_subscription_creation", _truth),
    "acknowledgmentAtBatchIndexLevelEnabled": Key("broker", "acknowledge_inside_batches", _truth),
    "activeConsumerFailoverDelayTimeMillis": Key("broker", "failover_delay_s", _scaled(0.001)),
    "maxPendingPublishRequestsPerConnection": Key("broker", "max_pending_publishes", _whole),
    "dispatcherMaxReadBatchSize": Key("broker", "max_read_entries", _whole),
    "dispatcherMaxReadSizeBytes": Key("broker", "max_read_bytes", _whole),
    "dispatcherMaxRoundRobinBatchSize": Key("broker", "max_round_robin_entries", _whole),
    "maxUnackedMessagesPerConsumer": Key("broker", "max_unacked_per_consumer", _whole),
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
    "managedLedgerMaxEntriesPerLedger": Key("storage", "max_ledger_entries", _whole),
    "managedLedgerMaxSizePerLedgerMbytes": Key("storage", "max_ledger_bytes", _mebibytes),
    "managedLedgerMaxLedgerRolloverTimeMinutes": Key("storage", "max_ledger_age_s", _scaled(60)),
    "managedLedgerCacheSizeMB": Key("storage", "tail_cache_bytes", _mebibytes),
    "journalMaxSizeMB": Key("storage", "journal_file_bytes", _mebibytes),
    "journalSyncDelayMs": Key("storage", "sync_delay_s", _scaled(0.001)),
}
"""Keys of broker.conf and bookkeeper.conf. ``journalSyncDelayMs`` is ours: it makes a disk slow, for benchmarks."""


def _only(accepted: Any, why: str) -> Callable[[Any], Any]:
    """Read a key with a single supported value; refuse others with the reason."""

    def read(value: Any) -> Any:
        if type(value) is not type(accepted) or value != accepted:
            raise ValueError(
                f"only {str(accepted).lower() if isinstance(accepted, bool) else accepted} works here: {why}"
            )
        return value

    return read


STATE_KEYS: dict[str, Key] = {
    "bindAddress": Key("state", "host", _text),
    "storageserver.grpc.port": Key("state", "port", _whole),
}
"""Keys of bookkeeper.conf for its table service."""

WORKER_KEYS: dict[str, Key] = {
    "workerId": Key("worker", "worker_id", _text),
    "workerHostname": Key("worker", "host", _text),
    "workerPort": Key("worker", "worker_port", _whole),
    "webServiceAllowedHosts": Key("worker", "allowed_hosts", host_names),
    "pulsarServiceUrl": Key("worker", "service_url", _text),
    "pulsarWebServiceUrl": Key("worker", "admin_url", _text),
    "pulsarFunctionsNamespace": Key("worker", "functions_namespace", _text),
    "pulsarFunctionsCluster": Key("worker", "cluster", _text),
    "functionMetadataTopicName": Key("worker", "metadata_topic", _text),
    "functionAssignmentTopicName": Key("worker", "assignments_topic", _text),
    "clusterCoordinationTopicName": Key("worker", "coordination_topic", _text),
    "stateStorageServiceUrl": Key("worker", "state_url", _text),
    "sparkMaster": Key("worker", "spark_master", _text),
    "sparkDriverMemory": Key("worker", "spark_driver_memory", _text),
    "sparkSettings": Key("worker", "spark_settings", _spark_settings),
    "sparkIdleTimeoutSec": Key("worker", "spark_idle_s", _number),
    "failureCheckFreqMs": Key("worker", "failure_check_ms", _whole),
    "instanceLivenessCheckFreqMs": Key("worker", "liveness_check_ms", _whole),
    "rescheduleTimeoutMs": Key("worker", "reschedule_timeout_ms", _whole),
    "rebalanceCheckFreqSec": Key("worker", "rebalance_check_s", _number),
    "topicCompactionFrequencySec": Key("worker", "compaction_s", _number),
    "initialBrokerReconnectMaxRetries": Key("worker", "broker_wait_s", _number),
    "numFunctionPackageReplicas": Key("worker", "", _only(1, "a package is a topic, replicated as the broker does it")),
    "useCompactedMetadataTopic": Key("worker", "", _only(True, "the metadata topic keeps one record a function")),
    "functionsWorkerEnablePackageManagement": Key("worker", "", _only(False, "packages are topics of the workers")),
    "schedulerClassName": Key(
        "worker", "",
        _only("org.apache.pulsar.functions.worker.scheduler.RoundRobinScheduler", "there is one scheduler"),
    ),
    "functionRuntimeFactoryClassName": Key(
        "worker", "",
        _only(
            "org.apache.pulsar.functions.runtime.process.ProcessRuntimeFactory",
            "each function chooses, by --runtime thread, process or spark",
        ),
    ),
    "authenticationEnabled": Key("worker", "", _only(False, "workers do not check who asks; keep their port private")),
    "authorizationEnabled": Key("worker", "", _only(False, "workers do not check who asks; keep their port private")),
    "tlsEnabled": Key("worker", "", _only(False, "workers do not speak TLS; put a proxy in front")),
    "useTls": Key("worker", "", _only(False, "brokers are reached without TLS so far")),
}  # fmt: skip
"""Keys of functions_worker.yml; one without a field has one value here, which is what always happens. Those that begin
with ``spark`` are ours."""

REFUSED_WORKER_KEYS: dict[str, str] = {
    "workerListProbeIntervalSec": "the leader looks who is there every failureCheckFreqMs",
    "assignmentWriteMaxRetries": "a leader that cannot write is replaced by the next",
    "workerPortTls": "workers do not speak TLS; put a proxy in front",
    "downloadDirectory": "packages are kept below --data-dir",
    "connectorsDirectory": "there are no connectors in this version",
    "functionsDirectory": "there are no built-in functions; send each with functions create",
    "configurationMetadataStoreUrl": "a worker keeps everything in topics; the broker has metadataStoreUrl",
    "configurationStoreServers": "a worker keeps everything in topics; the broker has metadataStoreUrl",
    "functionWebServiceUrl": "workers reach each other by workerHostname and workerPort",
    "functionRuntimeFactoryConfigs": "logs are kept below --data-dir, runtimes are chosen by --runtime",
    "numHttpServerThreads": "requests are served without threads",
    "brokerClientAuthenticationEnabled": "brokers are reached without authentication so far",
    "brokerClientAuthenticationPlugin": "brokers are reached without authentication so far",
    "brokerClientAuthenticationParameters": "brokers are reached without authentication so far",
    "tlsCertificateFilePath": "workers do not speak TLS; put a proxy in front",
    "tlsKeyFilePath": "workers do not speak TLS; put a proxy in front",
    "tlsTrustCertsFilePath": "workers do not speak TLS; put a proxy in front",
    "superUserRoles": "workers do not check who asks; keep their port private",
}
"""Keys of Pulsar's functions_worker.yml that nothing here corresponds to, and why."""

ELSEWHERE = (
    "host",
    "allowed_hosts",
    "service_url",
    "admin_url",
    "cluster",
    "broker_wait_s",
    "coordination_topic",
    "state_url",
)

STANDALONE_KEYS: dict[str, Key] = (
    BROKER_KEYS
    | {name: key for name, key in WORKER_KEYS.items() if key.field not in ELSEWHERE}
    | {name: key for name, key in STATE_KEYS.items() if key.field == "port"}
)
"""What standalone takes: its worker's address, broker, state store and cluster are its own."""


def read_server_file(path: str | None, keys: Mapping[str, Key]) -> dict[str, dict[str, Any]]:
    """Return the settings of a file by record: ``{"broker": {field: value}, …}``; without a file nothing.

    Raises:
        Failure: the file is unreadable, or holds an unknown key or a value of the wrong type.
    """
    found: dict[str, dict[str, Any]] = {"broker": {}, "storage": {}, "worker": {}, "state": {}}
    if path is None:
        return found
    content = read_yaml(path, "--config") or {}
    if not isinstance(content, dict):
        raise Failure(f"--config {path} must hold `key: value` lines, such as `brokerServicePort: 6650`")
    for name, value in content.items():
        key = keys.get(str(name))
        if key is None and keys is not BROKER_KEYS and name in REFUSED_WORKER_KEYS:
            raise Failure(f"--config {path}: {name} is not supported: {REFUSED_WORKER_KEYS[name]}; remove the line")
        if key is None:
            raise Failure(
                f"--config {path}: unknown key {name}{nearest(str(name), keys)}; known keys stand in docs/cli.md"
            )
        try:
            setting = key.read(value)
            if key.field:
                found[key.record][key.field] = setting
        except ValueError as exc:
            raise Failure(f"--config {path}: {name}: {value!r} is refused: {exc}") from exc
    return found
