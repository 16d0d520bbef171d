"""The keys of Pulsar's own files that have no effect here, with their default values.

``pulsar_keys.json`` lists, for each key of broker.conf, standalone.conf and functions_worker.yml in Pulsar 2.10, 3.0
and 4.0, the default values in these files and in the configuration classes, as text; an empty text means "not set". So
a server starts with the files that Pulsar ships. A changed line either has an effect (`config_file`), or is logged with
the reason why it has none (below), or is rejected because it requests something that would be missing (`promises`).
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
"""Values that differ from Pulsar's default, but match the fixed behaviour here."""

_TLS = "TLS is that of OpenSSL; docs/cli.md lists the settings"
_STORES = "certificates and keys are PEM files: tlsCertificateFilePath, tlsKeyFilePath and tlsTrustCertsFilePath"
_INSECURE = "client certificates are always verified"
_OWN_WORKER = "standalone's worker listens without TLS and is called on this machine only"
_SUPPORTED = "there are authentication providers for tokens, passwords and certificates, or your own Python modules"
_ACCESS = "docs/cli.md lists the settings of authentication and authorization"
_BOOKIES = "there are no bookies: entries are kept below --data-dir"
_BUNDLES = "one broker serves all topics, and no bundle moves"
_POLICY = "namespaces have no such policy in this version"
_PLUGINS = "Java classes cannot be loaded"
_WEB = "the web ports have limits of their own, see docs/cli.md"
_THREADS = "there is one event loop and no pool of threads to size"
_METRICS = "statistics and metrics have no settings"
_STANDALONE = "standalone's worker has standalone's own address, broker and state store; run magnetar worker"
_WORKER_STORE = "a worker keeps everything in topics; the broker has metadataStoreUrl"
_PACKAGES = "packages are topics of the workers, replicated as the broker does it"

_REASONS: tuple[tuple[str, str], ...] = (
    (r"bookkeeper.*|dbStorage_.*|bookie.*|enableRunBookie.*|strictBookieAffinityEnabled", _BOOKIES),
    (r"ledgerStorageClass|nettyMaxFrameSizeBytes|flushInterval|diskUsage.*", _BOOKIES),
    (r"journalMaxGroupWaitMSec|journalSyncData|allowLoopback|gcWaitTime", _BOOKIES),
    (r"managedLedger(Default|Max)(EnsembleSize|WriteQuorum|AckQuorum)|managedLedger(DigestType|Password)", _BOOKIES),
    (r".*Offload.*|offloadersDirectory|fileSystem.*|managedLedgerDataReadPriority", "ledgers are not offloaded"),
    (r"managed(Ledger|Cursor).*|lazyCursorRecovery|schemaLedgerForceRecovery|autoSkipNonRecoverableData"
     r"|persistentUnackedRanges.*|cacheEviction.*|dispatcherPauseOnAckState.*|retentionCheckIntervalInSeconds",
     "the storage has no such setting; docs/cli.md lists those it has"),
    (r"load(Balance|Manager).*|.*Shedding.*|flowOrQps.*|m(in|ax)Unload.*|topicBundleAssignment.*|.*Bundle(Split|s|U).*"
     r"|preferLaterVersions|failureDomainsEnabled|resourceUsageTransport.*|enableNamespaceIsolation.*", _BUNDLES),
    (r".*[tT]ransaction.*", "there are no transactions"),
    (r"webSocket.*", "there is no WebSocket interface"),
    (r".*[rR]eplicat(ion|or|edSub).*|clusterMigration.*", "nothing is replicated to other clusters"),
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
    (r"(ha|webServiceHa)Proxy.*|webService(TrustX|LogDetailed).*", "addresses are those of the connections"),
    (r".*Throttling.*|maxPublishRate.*|subscribeRate.*|dispatchRateLimiter.*|preciseTopicPublish.*",
     "rates are limited for topics, subscriptions and consumers only"),
    (r"(d|isD)elayedDelivery.*", "delayed delivery has no such setting"),
    (r"keySharedUnblocking.*|subscriptionKeySharedEnable|subscription(Key)?SharedUse.*",
     "Key_Shared works this way only; subscriptionTypesEnabled says whether there is any"),
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
    (r"functionsWorkerEnabled", "run magnetar standalone, or magnetar worker beside this broker"),
    (r"backlogQuota.*|preciseTimeBasedBacklog.*",
     "set backlogQuotaDefaultLimitBytes or backlogQuotaDefaultLimitSecond; times are always exact"),
    (r"ttlDuration.*|messageExpiry.*|additionalSystemCursorNames", _POLICY),
    (r"brokerDeleteInactive.*|brokerServicePurge.*|subscriptionExp.*|max(Tenants|NamespacesPer|TopicsPer).*", _POLICY),
    (r"max(SameAddress)?(Producers|Consumers|Subscriptions)Per.*|maxNumPartitions.*|defaultRetention.*", _POLICY),
    (r"subscriptionTypesEnabled|brokerMaxConnections.*|maxMessageSizeCheck.*", _POLICY),
    (r"forceDelete.*", "a tenant or namespace is deleted when it is empty; delete its topics first"),
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
"""Patterns that match whole key names, first match wins, and why such keys have no effect."""

_WORKER_REASONS: tuple[tuple[str, str], ...] = (
    (r"configuration(Store|Metadata).*|metadataStore.*|zooKeeper.*", _WORKER_STORE),
    (r"workerHostname|pulsar(Web)?ServiceUrl|pulsarFunctionsCluster|stateStorageServiceUrl|initialBroker.*"
     r"|clusterCoordinationTopicName", _STANDALONE),
    (r"workerListProbeIntervalSec", "the leader looks who is there every failureCheckFreqMs"),
    (r"assignmentWriteMaxRetries", "a leader that cannot write is replaced by the next"),
    (r"downloadDirectory", "packages are kept below --data-dir"),
    (r"connectorsDirectory|.*Connector.*", "connectors are Python modules that are installed or sent with --archive"),
    (r"functionsDirectory|.*Functions(Urls?|Directory).*",
     "there are no built-in functions; send each with functions create"),
    (r"functionWebServiceUrl", "workers reach each other by workerHostname and workerPort"),
    (r"functionRuntimeFactory.*|(thread|process|kubernetes)ContainerFactory",
     "logs are kept below --data-dir, and each function chooses: --runtime thread, process or spark"),
    (r"useCompactedMetadataTopic", "the metadata topic keeps one record a function"),
    (r"schedulerClassName", "there is one scheduler"),
    (r"initializedDlogMetadata|bookkeeperClient.*", _BOOKIES),
    (r"functionInstance.*", "resources are limited by the machine's own means"),
    (r"enableClassloading.*|validate.*|uploadBuiltin.*|exposeAdminClient.*|maxPendingAsync.*|forwardSource.*|ignoreUnknown.*",
     "workers have no such setting"),
)  # fmt: skip
"""The same for functions_worker.yml, checked before the common patterns."""

_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
PREFIXES = ("bookkeeper_", "brokerClient_", "dbStorage_")
"""Prefixes of keys that Pulsar passes on to libraries not used here."""


@cache
def pulsar_keys(file: str) -> Table:
    """Return the keys of ``broker`` (with standalone) or ``worker``, with the values that are not logged.

    Read once, when a file first contains a key without effect.
    """
    from importlib import resources  # imported here: not needed without a file

    table = json.loads(resources.files(__package__).joinpath("pulsar_keys.json").read_text())[file]
    return {name: (*values, *IN_FORCE.get(name, ())) for name, values in table.items()}


def reason_of(name: str, file: str) -> str | None:
    """Return why a key of ``broker`` or ``worker`` has no effect, or None if Pulsar does not have it."""
    reasons = (*_WORKER_REASONS, *_REASONS) if file == "worker" else _REASONS
    return next((reason for pattern, reason in reasons if re.fullmatch(pattern, name)), None)


def as_text(value: Any) -> str:
    """Format a YAML value like a ``.conf`` file; null is an empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(as_text(one) for one in value)
    return str(value).strip()


def is_same(given: str, accepted: str) -> bool:
    """Return whether two texts are equivalent: numbers by value, booleans in any case, lists in any order."""
    if given == accepted or given.lower() == accepted.lower() in ("true", "false"):
        return True
    if _NUMBER.fullmatch(given) and _NUMBER.fullmatch(accepted):
        return float(given) == float(accepted)
    return "," in accepted and sorted(map(str.strip, given.split(","))) == sorted(accepted.split(","))
