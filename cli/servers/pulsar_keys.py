"""Keys of Pulsar's own files that have no effect here, with their default values.

``pulsar_keys.json`` lists, for each key of broker.conf, standalone.conf and functions_worker.yml in Pulsar 2.10, 3.0
and 4.0, the default values in these files and in the configuration classes, as strings; an empty string means "not
set". So a server starts with the files shipped with Pulsar. A changed line either has an effect (`config_file`), is
logged with the reason why it has none (below), or is rejected because it requests a missing feature (`promises`).
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

Table = dict[str, tuple[str, ...]]

IN_FORCE: Table = {
    "loadBalancerEnabled": ("false",),
    "loadBalancerSheddingEnabled": ("false",),
    "loadBalancerAutoBundleSplitEnabled": ("false",),
    "journalSyncData": ("true",),
    "useCompactedMetadataTopic": ("true",),
    "uploadBuiltinSinksSources": ("false",),
    "enableReplicatedSubscriptions": ("false",),
    "metadataStoreBatchingEnabled": ("false",),
    "preciseTimeBasedBacklogQuotaCheck": ("true",),
    "exposePreciseBacklogInPrometheus": ("true",),
    "loadManagerClassName": ("org.apache.pulsar.broker.loadbalance.NoopLoadManager",),
    "isDelayedDeliveryDeliverAtTimeStrict": ("true",),
    "tlsHostnameVerificationEnabled": ("true",),
    "disableHttpDebugMethods": ("true",),
}
"""Values that differ from Pulsar's default but match the fixed behaviour here."""

_TLS = "OpenSSL provides TLS; docs/cli.md lists the settings"
_STORES = "certificates and keys are PEM files: tlsCertificateFilePath, tlsKeyFilePath and tlsTrustCertsFilePath"
_INSECURE = "client certificates are always verified"
_OWN_WORKER = "standalone's worker listens without TLS and is only called on this machine"
_SUPPORTED = "authentication providers are those for tokens, passwords and certificates, or Python modules"
_ACCESS = "docs/cli.md lists the settings for authentication and authorization"
_BOOKIES = "there are no bookies: entries are stored in --data-dir"
_BUNDLES = "one broker serves all topics, so bundles never move"
_POLICY = "this namespace policy is not supported by this version"
_PLUGINS = "Java classes cannot be loaded"
_WEB = "the web ports have their own limits, see docs/cli.md"
_THREADS = "there is one event loop instead of thread pools"
_METRICS = "statistics and metrics cannot be configured"
_STANDALONE = (
    "standalone's worker uses standalone's address, broker and state store; use magnetar worker to change them"
)
_WORKER_STORE = "a worker stores all data in topics; metadataStoreUrl is a broker setting"
_PACKAGES = "packages are topics, stored by the broker"

_REASONS: tuple[tuple[str, str], ...] = (
    (r"bookkeeper.*|dbStorage_.*|bookie.*|enableRunBookie.*|strictBookieAffinityEnabled", _BOOKIES),
    (r"ledgerStorageClass|nettyMaxFrameSizeBytes|flushInterval|diskUsage.*", _BOOKIES),
    (r"journalMaxGroupWaitMSec|journalSyncData|allowLoopback|gcWaitTime", _BOOKIES),
    (r"managedLedger(Default|Max)(EnsembleSize|WriteQuorum|AckQuorum)|managedLedger(DigestType|Password)", _BOOKIES),
    (r".*Offload.*|offloadersDirectory|fileSystem.*|managedLedgerDataReadPriority", "ledgers are not offloaded"),
    (r"managed(Ledger|Cursor).*|lazyCursorRecovery|schemaLedgerForceRecovery|autoSkipNonRecoverableData"
     r"|persistentUnackedRanges.*|cacheEviction.*|dispatcherPauseOnAckState.*|retentionCheckIntervalInSeconds",
     "the storage has no such setting; docs/cli.md lists the supported ones"),
    (r"load(Balance|Manager).*|.*Shedding.*|flowOrQps.*|m(in|ax)Unload.*|topicBundleAssignment.*|.*Bundle(Split|s|U).*"
     r"|preferLaterVersions|failureDomainsEnabled|resourceUsageTransport.*|enableNamespaceIsolation.*", _BUNDLES),
    (r".*[tT]ransaction.*", "transactions are not supported"),
    (r"webSocket.*", "there is no WebSocket interface"),
    (r".*[rR]eplicat(ion|or|edSub).*|clusterMigration.*", "replication to other clusters is not supported"),
    (r"tls(Key|Trust)Store.*|tlsEnabledWithKeyStore|tlsProvider", _STORES),
    (r"tlsAllowInsecureConnection", _INSECURE),
    (r"brokerClientTlsEnabled", _OWN_WORKER),
    (r"athenz.*|sasl.*|kinit.*|.*[sS]aslContext.*", _SUPPORTED),
    (r".*[tT]ls.*|use?Tls|.*Ssl.*|sslFactory.*|brokerClient(Trust|Key|Certificate).*", _TLS),
    (r"auth(entic|oriz).*|.*(superUser|proxy|anonymousUser)Roles?|athenz.*|basicAuthConf|token.*|sasl.*|kinit.*"
     r"|.*[sS]aslContext.*|brokerClient.*|allowAcl.*|clientAuthentication.*|functionAuthProvider.*", _ACCESS),
    (r"num.*Threads?|num.*Pool.*|.*ThreadPool(?!Queue).*|.*ThreadNum|enableBusyWait|numWorkerThreads.*"
     r"|dispatcherDispatchMessagesInSubscriptionThread", _THREADS),
    (r"http.*|maxConcurrentHttpRequests|maxHttpServerConnections|disableHttpDebugMethods", _WEB),
    (r"(ha|webServiceHa)Proxy.*|webService(TrustX|LogDetailed).*", "client addresses are taken from the connections"),
    (r".*Throttling.*|maxPublishRate.*|subscribeRate.*|dispatchRateLimiter.*|preciseTopicPublish.*",
     "rates are limited for topics, subscriptions and consumers only"),
    (r"(d|isD)elayedDelivery.*", "delayed delivery has no such setting"),
    (r"keySharedUnblocking.*|subscriptionKeySharedEnable|subscription(Key)?SharedUse.*",
     "Key_Shared always works this way; subscriptionTypesEnabled controls whether it is allowed"),
    (r".*[sS]chema.*", "the schema storage has no such setting"),
    (r"expose(?!AdminClient|ingBroker).*|metrics.*|jvmGC.*|split.*|aggregate.*|healthCheckMetrics.*|include.*"
     r"|statsUpdateInitial.*|allowedTopicPropertyKeys.*", _METRICS),
    (r"(brokerInterceptor|brokerEntry|entryFilter|protocol|additionalServlet|narExtraction|topicFactory).*|.*EntryFilters"
     r"|(compactionService|topicPoliciesService).*|messagingProtocols|disableBrokerInterceptors|exposingBrokerEntry.*"
     r"|useSeparateThreadPool.*|functionsWorkerService.*|runtimeCustomizer.*|secretsProvider.*|additionalJava.*"
     r"|stateStorageProvider.*|dispatcherEntryFilter.*", _PLUGINS),
    (r"(zoo[kK]eeper|metadata(Store|Sync)|configuration(Store|Metadata)|globalZookeeper).*",
     "only metadataStoreUrl and metadataStoreOperationTimeoutSeconds configure the metadata store"),
    (r"(packages?M|enableP|packagesR).*|functionsWorkerEnablePackageManagement|numFunctionPackageReplicas", _PACKAGES),
    (r"functionsWorkerEnabled", "run magnetar standalone, or magnetar worker with this broker"),
    (r"backlogQuota.*|preciseTimeBasedBacklog.*",
     "set backlogQuotaDefaultLimitBytes or backlogQuotaDefaultLimitSecond; times are always exact"),
    (r"ttlDuration.*|messageExpiry.*|additionalSystemCursorNames", _POLICY),
    (r"brokerDeleteInactive.*|brokerServicePurge.*|subscriptionExp.*|max(Tenants|NamespacesPer|TopicsPer).*", _POLICY),
    (r"max(SameAddress)?(Producers|Consumers|Subscriptions)Per.*|maxNumPartitions.*|defaultRetention.*", _POLICY),
    (r"subscriptionTypesEnabled|brokerMaxConnections.*|maxMessageSizeCheck.*", _POLICY),
    (r"forceDelete.*", "only empty tenants and namespaces can be deleted; delete their topics first"),
    (r"maxUnackedMessagesPer.*Broker.*|unblockStuck.*|preciseDispatcher.*|dispatcher(Read|Retry|Min).*"
     r"|subscription(Redelivery|Backlog).*|activeConsumerFailoverConsistent.*"
     r"|messagePublishBuffer.*|maxConcurrent(Lookup|Topic|Non).*|topic(Load|Fencing).*",
     "the broker has no such setting"),
    (r"enable(Persistent|NonPersistent)Topics|systemTopicEnabled|topicLevelPoliciesEnabled|strict.*|topicNameCache.*"
     r"|maxSecondsToClear.*|topicsPattern.*|enableBrokerSide.*|subscriptionPattern.*|allowAutoTopicCreationWith.*"
     r"|bootstrapNamespaces|isRunningStandalone|clientLibraryVersionCheck.*|statusFilePath|lookupPropertyPrefix"
     r"|autoShrink.*|streamingDispatch|maxTopicListInFlight.*"
     r"|broker(ShutdownTimeout|ServiceCompactionPhase).*|skipBrokerShutdown.*|topicCompactionRetain.*|statsUpdate.*",
     "the broker has no such setting"),
)  # fmt: skip
"""Patterns that match whole key names (first match wins), and the reasons why these keys have no effect."""

_WORKER_REASONS: tuple[tuple[str, str], ...] = (
    (r"configuration(Store|Metadata).*|metadataStore.*|zooKeeper.*", _WORKER_STORE),
    (r"workerHostname|pulsar(Web)?ServiceUrl|pulsarFunctionsCluster|stateStorageServiceUrl|initialBroker.*"
     r"|clusterCoordinationTopicName", _STANDALONE),
    (r"workerListProbeIntervalSec", "the leader checks the workers every failureCheckFreqMs"),
    (r"assignmentWriteMaxRetries", "a leader that cannot write is replaced"),
    (r"downloadDirectory", "packages are stored in --data-dir"),
    (r"connectorsDirectory|.*Connector.*", "connectors are Python modules, installed or uploaded with --archive"),
    (r"functionsDirectory|.*Functions(Urls?|Directory).*",
     "there are no built-in functions; upload each with functions create"),
    (r"functionWebServiceUrl", "workers connect to each other through workerHostname and workerPort"),
    (r"functionRuntimeFactory.*|(thread|process|kubernetes)ContainerFactory",
     "logs are stored in --data-dir, and the runtime is set per function: --runtime thread, process or spark"),
    (r"useCompactedMetadataTopic", "the metadata topic keeps one record per function"),
    (r"schedulerClassName", "there is one scheduler"),
    (r"initializedDlogMetadata|bookkeeperClient.*", _BOOKIES),
    (r"functionInstance.*", "resources are limited by the operating system"),
    (r"enableClassloading.*|validate.*|uploadBuiltin.*|exposeAdminClient.*|maxPendingAsync.*|forwardSource.*|ignoreUnknown.*",
     "the worker has no such setting"),
)  # fmt: skip
"""Patterns for functions_worker.yml, checked before the common ones."""

_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
PREFIXES = ("bookkeeper_", "brokerClient_", "dbStorage_")
"""Prefixes of keys that Pulsar passes on to libraries not used here."""


@cache
def pulsar_keys(file: str) -> Table:
    """Return the keys for ``broker`` (including standalone) or ``worker``, with the values that are not logged.

    The keys are read once, when a file first contains a key without effect.
    """
    from importlib import resources  # imported here: not needed without a file

    table = json.loads(resources.files(__package__).joinpath("pulsar_keys.json").read_text())[file]
    return {name: (*values, *IN_FORCE.get(name, ())) for name, values in table.items()}


def reason_of(name: str, file: str) -> str | None:
    """Return why a key for ``broker`` or ``worker`` has no effect, or None if the key does not exist in Pulsar."""
    reasons = (*_WORKER_REASONS, *_REASONS) if file == "worker" else _REASONS
    return next((reason for pattern, reason in reasons if re.fullmatch(pattern, name)), None)


def as_text(value: Any) -> str:
    """Format a YAML value as in a ``.conf`` file; null becomes an empty string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(as_text(one) for one in value)
    return str(value).strip()


def is_same(given: str, accepted: str) -> bool:
    """Return whether two strings are equivalent: numbers by value, booleans in any case, lists in any order."""
    if given == accepted or given.lower() == accepted.lower() in ("true", "false"):
        return True
    if _NUMBER.fullmatch(given) and _NUMBER.fullmatch(accepted):
        return float(given) == float(accepted)
    return "," in accepted and sorted(map(str.strip, given.split(","))) == sorted(accepted.split(","))
