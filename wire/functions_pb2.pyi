from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProcessingGuarantees(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATLEAST_ONCE: _ClassVar[ProcessingGuarantees]
    ATMOST_ONCE: _ClassVar[ProcessingGuarantees]
    EFFECTIVELY_ONCE: _ClassVar[ProcessingGuarantees]
    MANUAL: _ClassVar[ProcessingGuarantees]

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARED: _ClassVar[SubscriptionType]
    FAILOVER: _ClassVar[SubscriptionType]
    KEY_SHARED: _ClassVar[SubscriptionType]

class SubscriptionPosition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LATEST: _ClassVar[SubscriptionPosition]
    EARLIEST: _ClassVar[SubscriptionPosition]

class CompressionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LZ4: _ClassVar[CompressionType]
    NONE: _ClassVar[CompressionType]
    ZLIB: _ClassVar[CompressionType]
    ZSTD: _ClassVar[CompressionType]
    SNAPPY: _ClassVar[CompressionType]

class FunctionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUNNING: _ClassVar[FunctionState]
    STOPPED: _ClassVar[FunctionState]
ATLEAST_ONCE: ProcessingGuarantees
ATMOST_ONCE: ProcessingGuarantees
EFFECTIVELY_ONCE: ProcessingGuarantees
MANUAL: ProcessingGuarantees
SHARED: SubscriptionType
FAILOVER: SubscriptionType
KEY_SHARED: SubscriptionType
LATEST: SubscriptionPosition
EARLIEST: SubscriptionPosition
LZ4: CompressionType
NONE: CompressionType
ZLIB: CompressionType
ZSTD: CompressionType
SNAPPY: CompressionType
RUNNING: FunctionState
STOPPED: FunctionState

class FunctionDetails(_message.Message):
    __slots__ = ("tenant", "namespace", "name", "className", "logTopic", "processingGuarantees", "userConfig", "runtime", "autoAck", "parallelism", "source", "sink", "resources", "packageUrl", "retryDetails", "secretsMap", "runtimeFlags", "componentType", "customRuntimeOptions", "builtin", "retainOrdering", "retainKeyOrdering", "subscriptionPosition")
    class Runtime(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        JAVA: _ClassVar[FunctionDetails.Runtime]
        PYTHON: _ClassVar[FunctionDetails.Runtime]
        GO: _ClassVar[FunctionDetails.Runtime]
    JAVA: FunctionDetails.Runtime
    PYTHON: FunctionDetails.Runtime
    GO: FunctionDetails.Runtime
    class ComponentType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[FunctionDetails.ComponentType]
        FUNCTION: _ClassVar[FunctionDetails.ComponentType]
        SOURCE: _ClassVar[FunctionDetails.ComponentType]
        SINK: _ClassVar[FunctionDetails.ComponentType]
    UNKNOWN: FunctionDetails.ComponentType
    FUNCTION: FunctionDetails.ComponentType
    SOURCE: FunctionDetails.ComponentType
    SINK: FunctionDetails.ComponentType
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLASSNAME_FIELD_NUMBER: _ClassVar[int]
    LOGTOPIC_FIELD_NUMBER: _ClassVar[int]
    PROCESSINGGUARANTEES_FIELD_NUMBER: _ClassVar[int]
    USERCONFIG_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    AUTOACK_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PACKAGEURL_FIELD_NUMBER: _ClassVar[int]
    RETRYDETAILS_FIELD_NUMBER: _ClassVar[int]
    SECRETSMAP_FIELD_NUMBER: _ClassVar[int]
    RUNTIMEFLAGS_FIELD_NUMBER: _ClassVar[int]
    COMPONENTTYPE_FIELD_NUMBER: _ClassVar[int]
    CUSTOMRUNTIMEOPTIONS_FIELD_NUMBER: _ClassVar[int]
    BUILTIN_FIELD_NUMBER: _ClassVar[int]
    RETAINORDERING_FIELD_NUMBER: _ClassVar[int]
    RETAINKEYORDERING_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONPOSITION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    namespace: str
    name: str
    className: str
    logTopic: str
    processingGuarantees: ProcessingGuarantees
    userConfig: str
    runtime: FunctionDetails.Runtime
    autoAck: bool
    parallelism: int
    source: SourceSpec
    sink: SinkSpec
    resources: Resources
    packageUrl: str
    retryDetails: RetryDetails
    secretsMap: str
    runtimeFlags: str
    componentType: FunctionDetails.ComponentType
    customRuntimeOptions: str
    builtin: str
    retainOrdering: bool
    retainKeyOrdering: bool
    subscriptionPosition: SubscriptionPosition
    def __init__(self, tenant: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., className: _Optional[str] = ..., logTopic: _Optional[str] = ..., processingGuarantees: _Optional[_Union[ProcessingGuarantees, str]] = ..., userConfig: _Optional[str] = ..., runtime: _Optional[_Union[FunctionDetails.Runtime, str]] = ..., autoAck: _Optional[bool] = ..., parallelism: _Optional[int] = ..., source: _Optional[_Union[SourceSpec, _Mapping]] = ..., sink: _Optional[_Union[SinkSpec, _Mapping]] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., packageUrl: _Optional[str] = ..., retryDetails: _Optional[_Union[RetryDetails, _Mapping]] = ..., secretsMap: _Optional[str] = ..., runtimeFlags: _Optional[str] = ..., componentType: _Optional[_Union[FunctionDetails.ComponentType, str]] = ..., customRuntimeOptions: _Optional[str] = ..., builtin: _Optional[str] = ..., retainOrdering: _Optional[bool] = ..., retainKeyOrdering: _Optional[bool] = ..., subscriptionPosition: _Optional[_Union[SubscriptionPosition, str]] = ...) -> None: ...

class CryptoSpec(_message.Message):
    __slots__ = ("cryptoKeyReaderClassName", "cryptoKeyReaderConfig", "producerEncryptionKeyName", "producerCryptoFailureAction", "consumerCryptoFailureAction")
    class FailureAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FAIL: _ClassVar[CryptoSpec.FailureAction]
        DISCARD: _ClassVar[CryptoSpec.FailureAction]
        CONSUME: _ClassVar[CryptoSpec.FailureAction]
        SEND: _ClassVar[CryptoSpec.FailureAction]
    FAIL: CryptoSpec.FailureAction
    DISCARD: CryptoSpec.FailureAction
    CONSUME: CryptoSpec.FailureAction
    SEND: CryptoSpec.FailureAction
    CRYPTOKEYREADERCLASSNAME_FIELD_NUMBER: _ClassVar[int]
    CRYPTOKEYREADERCONFIG_FIELD_NUMBER: _ClassVar[int]
    PRODUCERENCRYPTIONKEYNAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCERCRYPTOFAILUREACTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMERCRYPTOFAILUREACTION_FIELD_NUMBER: _ClassVar[int]
    cryptoKeyReaderClassName: str
    cryptoKeyReaderConfig: str
    producerEncryptionKeyName: _containers.RepeatedScalarFieldContainer[str]
    producerCryptoFailureAction: CryptoSpec.FailureAction
    consumerCryptoFailureAction: CryptoSpec.FailureAction
    def __init__(self, cryptoKeyReaderClassName: _Optional[str] = ..., cryptoKeyReaderConfig: _Optional[str] = ..., producerEncryptionKeyName: _Optional[_Iterable[str]] = ..., producerCryptoFailureAction: _Optional[_Union[CryptoSpec.FailureAction, str]] = ..., consumerCryptoFailureAction: _Optional[_Union[CryptoSpec.FailureAction, str]] = ...) -> None: ...

class ServiceRequest(_message.Message):
    __slots__ = ("serviceRequestType", "requestId", "functionMetaData", "workerId")
    class ServiceRequestType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UPDATE: _ClassVar[ServiceRequest.ServiceRequestType]
        DELETE: _ClassVar[ServiceRequest.ServiceRequestType]
        INITIALIZE: _ClassVar[ServiceRequest.ServiceRequestType]
    UPDATE: ServiceRequest.ServiceRequestType
    DELETE: ServiceRequest.ServiceRequestType
    INITIALIZE: ServiceRequest.ServiceRequestType
    SERVICEREQUESTTYPE_FIELD_NUMBER: _ClassVar[int]
    REQUESTID_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONMETADATA_FIELD_NUMBER: _ClassVar[int]
    WORKERID_FIELD_NUMBER: _ClassVar[int]
    serviceRequestType: ServiceRequest.ServiceRequestType
    requestId: str
    functionMetaData: FunctionMetaData
    workerId: str
    def __init__(self, serviceRequestType: _Optional[_Union[ServiceRequest.ServiceRequestType, str]] = ..., requestId: _Optional[str] = ..., functionMetaData: _Optional[_Union[FunctionMetaData, _Mapping]] = ..., workerId: _Optional[str] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("cpu", "ram", "disk")
    CPU_FIELD_NUMBER: _ClassVar[int]
    RAM_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    ram: int
    disk: int
    def __init__(self, cpu: _Optional[float] = ..., ram: _Optional[int] = ..., disk: _Optional[int] = ...) -> None: ...

class RetryDetails(_message.Message):
    __slots__ = ("maxMessageRetries", "deadLetterTopic")
    MAXMESSAGERETRIES_FIELD_NUMBER: _ClassVar[int]
    DEADLETTERTOPIC_FIELD_NUMBER: _ClassVar[int]
    maxMessageRetries: int
    deadLetterTopic: str
    def __init__(self, maxMessageRetries: _Optional[int] = ..., deadLetterTopic: _Optional[str] = ...) -> None: ...

class ConsumerSpec(_message.Message):
    __slots__ = ("schemaType", "serdeClassName", "isRegexPattern", "receiverQueueSize", "schemaProperties", "consumerProperties", "cryptoSpec", "poolMessages", "messagePayloadProcessorSpec")
    class ReceiverQueueSize(_message.Message):
        __slots__ = ("value",)
        VALUE_FIELD_NUMBER: _ClassVar[int]
        value: int
        def __init__(self, value: _Optional[int] = ...) -> None: ...
    class SchemaPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ConsumerPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SCHEMATYPE_FIELD_NUMBER: _ClassVar[int]
    SERDECLASSNAME_FIELD_NUMBER: _ClassVar[int]
    ISREGEXPATTERN_FIELD_NUMBER: _ClassVar[int]
    RECEIVERQUEUESIZE_FIELD_NUMBER: _ClassVar[int]
    SCHEMAPROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CONSUMERPROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CRYPTOSPEC_FIELD_NUMBER: _ClassVar[int]
    POOLMESSAGES_FIELD_NUMBER: _ClassVar[int]
    MESSAGEPAYLOADPROCESSORSPEC_FIELD_NUMBER: _ClassVar[int]
    schemaType: str
    serdeClassName: str
    isRegexPattern: bool
    receiverQueueSize: ConsumerSpec.ReceiverQueueSize
    schemaProperties: _containers.ScalarMap[str, str]
    consumerProperties: _containers.ScalarMap[str, str]
    cryptoSpec: CryptoSpec
    poolMessages: bool
    messagePayloadProcessorSpec: MessagePayloadProcessorSpec
    def __init__(self, schemaType: _Optional[str] = ..., serdeClassName: _Optional[str] = ..., isRegexPattern: _Optional[bool] = ..., receiverQueueSize: _Optional[_Union[ConsumerSpec.ReceiverQueueSize, _Mapping]] = ..., schemaProperties: _Optional[_Mapping[str, str]] = ..., consumerProperties: _Optional[_Mapping[str, str]] = ..., cryptoSpec: _Optional[_Union[CryptoSpec, _Mapping]] = ..., poolMessages: _Optional[bool] = ..., messagePayloadProcessorSpec: _Optional[_Union[MessagePayloadProcessorSpec, _Mapping]] = ...) -> None: ...

class ProducerSpec(_message.Message):
    __slots__ = ("maxPendingMessages", "maxPendingMessagesAcrossPartitions", "useThreadLocalProducers", "cryptoSpec", "batchBuilder", "compressionType", "batchingSpec")
    MAXPENDINGMESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAXPENDINGMESSAGESACROSSPARTITIONS_FIELD_NUMBER: _ClassVar[int]
    USETHREADLOCALPRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CRYPTOSPEC_FIELD_NUMBER: _ClassVar[int]
    BATCHBUILDER_FIELD_NUMBER: _ClassVar[int]
    COMPRESSIONTYPE_FIELD_NUMBER: _ClassVar[int]
    BATCHINGSPEC_FIELD_NUMBER: _ClassVar[int]
    maxPendingMessages: int
    maxPendingMessagesAcrossPartitions: int
    useThreadLocalProducers: bool
    cryptoSpec: CryptoSpec
    batchBuilder: str
    compressionType: CompressionType
    batchingSpec: BatchingSpec
    def __init__(self, maxPendingMessages: _Optional[int] = ..., maxPendingMessagesAcrossPartitions: _Optional[int] = ..., useThreadLocalProducers: _Optional[bool] = ..., cryptoSpec: _Optional[_Union[CryptoSpec, _Mapping]] = ..., batchBuilder: _Optional[str] = ..., compressionType: _Optional[_Union[CompressionType, str]] = ..., batchingSpec: _Optional[_Union[BatchingSpec, _Mapping]] = ...) -> None: ...

class MessagePayloadProcessorSpec(_message.Message):
    __slots__ = ("className", "configs")
    CLASSNAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    className: str
    configs: str
    def __init__(self, className: _Optional[str] = ..., configs: _Optional[str] = ...) -> None: ...

class BatchingSpec(_message.Message):
    __slots__ = ("enabled", "batchingMaxPublishDelayMs", "roundRobinRouterBatchingPartitionSwitchFrequency", "batchingMaxMessages", "batchingMaxBytes", "batchBuilder")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    BATCHINGMAXPUBLISHDELAYMS_FIELD_NUMBER: _ClassVar[int]
    ROUNDROBINROUTERBATCHINGPARTITIONSWITCHFREQUENCY_FIELD_NUMBER: _ClassVar[int]
    BATCHINGMAXMESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCHINGMAXBYTES_FIELD_NUMBER: _ClassVar[int]
    BATCHBUILDER_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    batchingMaxPublishDelayMs: int
    roundRobinRouterBatchingPartitionSwitchFrequency: int
    batchingMaxMessages: int
    batchingMaxBytes: int
    batchBuilder: str
    def __init__(self, enabled: _Optional[bool] = ..., batchingMaxPublishDelayMs: _Optional[int] = ..., roundRobinRouterBatchingPartitionSwitchFrequency: _Optional[int] = ..., batchingMaxMessages: _Optional[int] = ..., batchingMaxBytes: _Optional[int] = ..., batchBuilder: _Optional[str] = ...) -> None: ...

class SourceSpec(_message.Message):
    __slots__ = ("className", "configs", "subscriptionType", "topicsToSerDeClassName", "typeClassName", "timeoutMs", "topicsPattern", "builtin", "subscriptionName", "inputSpecs", "cleanupSubscription", "subscriptionPosition", "negativeAckRedeliveryDelayMs", "skipToLatest")
    class TopicsToSerDeClassNameEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class InputSpecsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ConsumerSpec
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ConsumerSpec, _Mapping]] = ...) -> None: ...
    CLASSNAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONTYPE_FIELD_NUMBER: _ClassVar[int]
    TOPICSTOSERDECLASSNAME_FIELD_NUMBER: _ClassVar[int]
    TYPECLASSNAME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTMS_FIELD_NUMBER: _ClassVar[int]
    TOPICSPATTERN_FIELD_NUMBER: _ClassVar[int]
    BUILTIN_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONNAME_FIELD_NUMBER: _ClassVar[int]
    INPUTSPECS_FIELD_NUMBER: _ClassVar[int]
    CLEANUPSUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONPOSITION_FIELD_NUMBER: _ClassVar[int]
    NEGATIVEACKREDELIVERYDELAYMS_FIELD_NUMBER: _ClassVar[int]
    SKIPTOLATEST_FIELD_NUMBER: _ClassVar[int]
    className: str
    configs: str
    subscriptionType: SubscriptionType
    topicsToSerDeClassName: _containers.ScalarMap[str, str]
    typeClassName: str
    timeoutMs: int
    topicsPattern: str
    builtin: str
    subscriptionName: str
    inputSpecs: _containers.MessageMap[str, ConsumerSpec]
    cleanupSubscription: bool
    subscriptionPosition: SubscriptionPosition
    negativeAckRedeliveryDelayMs: int
    skipToLatest: bool
    def __init__(self, className: _Optional[str] = ..., configs: _Optional[str] = ..., subscriptionType: _Optional[_Union[SubscriptionType, str]] = ..., topicsToSerDeClassName: _Optional[_Mapping[str, str]] = ..., typeClassName: _Optional[str] = ..., timeoutMs: _Optional[int] = ..., topicsPattern: _Optional[str] = ..., builtin: _Optional[str] = ..., subscriptionName: _Optional[str] = ..., inputSpecs: _Optional[_Mapping[str, ConsumerSpec]] = ..., cleanupSubscription: _Optional[bool] = ..., subscriptionPosition: _Optional[_Union[SubscriptionPosition, str]] = ..., negativeAckRedeliveryDelayMs: _Optional[int] = ..., skipToLatest: _Optional[bool] = ...) -> None: ...

class SinkSpec(_message.Message):
    __slots__ = ("className", "configs", "topic", "serDeClassName", "typeClassName", "builtin", "schemaType", "forwardSourceMessageProperty", "schemaProperties", "consumerProperties", "producerSpec")
    class SchemaPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ConsumerPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CLASSNAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SERDECLASSNAME_FIELD_NUMBER: _ClassVar[int]
    TYPECLASSNAME_FIELD_NUMBER: _ClassVar[int]
    BUILTIN_FIELD_NUMBER: _ClassVar[int]
    SCHEMATYPE_FIELD_NUMBER: _ClassVar[int]
    FORWARDSOURCEMESSAGEPROPERTY_FIELD_NUMBER: _ClassVar[int]
    SCHEMAPROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CONSUMERPROPERTIES_FIELD_NUMBER: _ClassVar[int]
    PRODUCERSPEC_FIELD_NUMBER: _ClassVar[int]
    className: str
    configs: str
    topic: str
    serDeClassName: str
    typeClassName: str
    builtin: str
    schemaType: str
    forwardSourceMessageProperty: bool
    schemaProperties: _containers.ScalarMap[str, str]
    consumerProperties: _containers.ScalarMap[str, str]
    producerSpec: ProducerSpec
    def __init__(self, className: _Optional[str] = ..., configs: _Optional[str] = ..., topic: _Optional[str] = ..., serDeClassName: _Optional[str] = ..., typeClassName: _Optional[str] = ..., builtin: _Optional[str] = ..., schemaType: _Optional[str] = ..., forwardSourceMessageProperty: _Optional[bool] = ..., schemaProperties: _Optional[_Mapping[str, str]] = ..., consumerProperties: _Optional[_Mapping[str, str]] = ..., producerSpec: _Optional[_Union[ProducerSpec, _Mapping]] = ...) -> None: ...

class PackageLocationMetaData(_message.Message):
    __slots__ = ("packagePath", "originalFileName")
    PACKAGEPATH_FIELD_NUMBER: _ClassVar[int]
    ORIGINALFILENAME_FIELD_NUMBER: _ClassVar[int]
    packagePath: str
    originalFileName: str
    def __init__(self, packagePath: _Optional[str] = ..., originalFileName: _Optional[str] = ...) -> None: ...

class FunctionMetaData(_message.Message):
    __slots__ = ("functionDetails", "packageLocation", "version", "createTime", "instanceStates", "functionAuthSpec", "transformFunctionPackageLocation", "functionUuid", "cursorIncarnation", "deployments", "stateEpoch", "stateChange")
    class InstanceStatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: FunctionState
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[FunctionState, str]] = ...) -> None: ...
    FUNCTIONDETAILS_FIELD_NUMBER: _ClassVar[int]
    PACKAGELOCATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATETIME_FIELD_NUMBER: _ClassVar[int]
    INSTANCESTATES_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONAUTHSPEC_FIELD_NUMBER: _ClassVar[int]
    TRANSFORMFUNCTIONPACKAGELOCATION_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONUUID_FIELD_NUMBER: _ClassVar[int]
    CURSORINCARNATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    STATEEPOCH_FIELD_NUMBER: _ClassVar[int]
    STATECHANGE_FIELD_NUMBER: _ClassVar[int]
    functionDetails: FunctionDetails
    packageLocation: PackageLocationMetaData
    version: int
    createTime: int
    instanceStates: _containers.ScalarMap[int, FunctionState]
    functionAuthSpec: FunctionAuthenticationSpec
    transformFunctionPackageLocation: PackageLocationMetaData
    functionUuid: str
    cursorIncarnation: int
    deployments: Deployments
    stateEpoch: int
    stateChange: StateChange
    def __init__(self, functionDetails: _Optional[_Union[FunctionDetails, _Mapping]] = ..., packageLocation: _Optional[_Union[PackageLocationMetaData, _Mapping]] = ..., version: _Optional[int] = ..., createTime: _Optional[int] = ..., instanceStates: _Optional[_Mapping[int, FunctionState]] = ..., functionAuthSpec: _Optional[_Union[FunctionAuthenticationSpec, _Mapping]] = ..., transformFunctionPackageLocation: _Optional[_Union[PackageLocationMetaData, _Mapping]] = ..., functionUuid: _Optional[str] = ..., cursorIncarnation: _Optional[int] = ..., deployments: _Optional[_Union[Deployments, _Mapping]] = ..., stateEpoch: _Optional[int] = ..., stateChange: _Optional[_Union[StateChange, _Mapping]] = ...) -> None: ...

class StateChange(_message.Message):
    __slots__ = ("version", "isRestore", "askedBy")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ISRESTORE_FIELD_NUMBER: _ClassVar[int]
    ASKEDBY_FIELD_NUMBER: _ClassVar[int]
    version: int
    isRestore: bool
    askedBy: int
    def __init__(self, version: _Optional[int] = ..., isRestore: _Optional[bool] = ..., askedBy: _Optional[int] = ...) -> None: ...

class Deployment(_message.Message):
    __slots__ = ("version", "timeMs", "functionDetails", "packageLocation", "transformFunctionPackageLocation", "failure", "restoredVersion", "isRestored", "functionAuthSpec")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMEMS_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONDETAILS_FIELD_NUMBER: _ClassVar[int]
    PACKAGELOCATION_FIELD_NUMBER: _ClassVar[int]
    TRANSFORMFUNCTIONPACKAGELOCATION_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESTOREDVERSION_FIELD_NUMBER: _ClassVar[int]
    ISRESTORED_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONAUTHSPEC_FIELD_NUMBER: _ClassVar[int]
    version: int
    timeMs: int
    functionDetails: FunctionDetails
    packageLocation: PackageLocationMetaData
    transformFunctionPackageLocation: PackageLocationMetaData
    failure: str
    restoredVersion: int
    isRestored: bool
    functionAuthSpec: FunctionAuthenticationSpec
    def __init__(self, version: _Optional[int] = ..., timeMs: _Optional[int] = ..., functionDetails: _Optional[_Union[FunctionDetails, _Mapping]] = ..., packageLocation: _Optional[_Union[PackageLocationMetaData, _Mapping]] = ..., transformFunctionPackageLocation: _Optional[_Union[PackageLocationMetaData, _Mapping]] = ..., failure: _Optional[str] = ..., restoredVersion: _Optional[int] = ..., isRestored: _Optional[bool] = ..., functionAuthSpec: _Optional[_Union[FunctionAuthenticationSpec, _Mapping]] = ...) -> None: ...

class Deployments(_message.Message):
    __slots__ = ("newest", "earlier", "trial")
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    EARLIER_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    newest: Deployment
    earlier: _containers.RepeatedCompositeFieldContainer[Deployment]
    trial: Trial
    def __init__(self, newest: _Optional[_Union[Deployment, _Mapping]] = ..., earlier: _Optional[_Iterable[_Union[Deployment, _Mapping]]] = ..., trial: _Optional[_Union[Trial, _Mapping]] = ...) -> None: ...

class Trial(_message.Message):
    __slots__ = ("fallbackVersion", "untilMs")
    FALLBACKVERSION_FIELD_NUMBER: _ClassVar[int]
    UNTILMS_FIELD_NUMBER: _ClassVar[int]
    fallbackVersion: int
    untilMs: int
    def __init__(self, fallbackVersion: _Optional[int] = ..., untilMs: _Optional[int] = ...) -> None: ...

class FunctionAuthenticationSpec(_message.Message):
    __slots__ = ("data", "provider")
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    provider: str
    def __init__(self, data: _Optional[bytes] = ..., provider: _Optional[str] = ...) -> None: ...

class Instance(_message.Message):
    __slots__ = ("functionMetaData", "instanceId")
    FUNCTIONMETADATA_FIELD_NUMBER: _ClassVar[int]
    INSTANCEID_FIELD_NUMBER: _ClassVar[int]
    functionMetaData: FunctionMetaData
    instanceId: int
    def __init__(self, functionMetaData: _Optional[_Union[FunctionMetaData, _Mapping]] = ..., instanceId: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("instance", "workerId")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    WORKERID_FIELD_NUMBER: _ClassVar[int]
    instance: Instance
    workerId: str
    def __init__(self, instance: _Optional[_Union[Instance, _Mapping]] = ..., workerId: _Optional[str] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FunctionStatus(_message.Message):
    __slots__ = ("running", "failureException", "numRestarts", "numSuccessfullyProcessed", "numUserExceptions", "latestUserExceptions", "numSystemExceptions", "latestSystemExceptions", "averageLatency", "lastInvocationTime", "instanceId", "workerId", "numReceived", "numSourceExceptions", "latestSourceExceptions", "numSinkExceptions", "latestSinkExceptions", "run")
    class ExceptionInformation(_message.Message):
        __slots__ = ("exceptionString", "msSinceEpoch")
        EXCEPTIONSTRING_FIELD_NUMBER: _ClassVar[int]
        MSSINCEEPOCH_FIELD_NUMBER: _ClassVar[int]
        exceptionString: str
        msSinceEpoch: int
        def __init__(self, exceptionString: _Optional[str] = ..., msSinceEpoch: _Optional[int] = ...) -> None: ...
    class Run(_message.Message):
        __slots__ = ("runId", "stage", "tasksDone", "tasksTotal", "rows", "rowsPerSecond", "error", "startedMs", "endedMs", "lag")
        RUNID_FIELD_NUMBER: _ClassVar[int]
        STAGE_FIELD_NUMBER: _ClassVar[int]
        TASKSDONE_FIELD_NUMBER: _ClassVar[int]
        TASKSTOTAL_FIELD_NUMBER: _ClassVar[int]
        ROWS_FIELD_NUMBER: _ClassVar[int]
        ROWSPERSECOND_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        STARTEDMS_FIELD_NUMBER: _ClassVar[int]
        ENDEDMS_FIELD_NUMBER: _ClassVar[int]
        LAG_FIELD_NUMBER: _ClassVar[int]
        runId: str
        stage: str
        tasksDone: int
        tasksTotal: int
        rows: int
        rowsPerSecond: float
        error: str
        startedMs: int
        endedMs: int
        lag: int
        def __init__(self, runId: _Optional[str] = ..., stage: _Optional[str] = ..., tasksDone: _Optional[int] = ..., tasksTotal: _Optional[int] = ..., rows: _Optional[int] = ..., rowsPerSecond: _Optional[float] = ..., error: _Optional[str] = ..., startedMs: _Optional[int] = ..., endedMs: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    FAILUREEXCEPTION_FIELD_NUMBER: _ClassVar[int]
    NUMRESTARTS_FIELD_NUMBER: _ClassVar[int]
    NUMSUCCESSFULLYPROCESSED_FIELD_NUMBER: _ClassVar[int]
    NUMUSEREXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    LATESTUSEREXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUMSYSTEMEXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    LATESTSYSTEMEXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    AVERAGELATENCY_FIELD_NUMBER: _ClassVar[int]
    LASTINVOCATIONTIME_FIELD_NUMBER: _ClassVar[int]
    INSTANCEID_FIELD_NUMBER: _ClassVar[int]
    WORKERID_FIELD_NUMBER: _ClassVar[int]
    NUMRECEIVED_FIELD_NUMBER: _ClassVar[int]
    NUMSOURCEEXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    LATESTSOURCEEXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUMSINKEXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    LATESTSINKEXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    running: bool
    failureException: str
    numRestarts: int
    numSuccessfullyProcessed: int
    numUserExceptions: int
    latestUserExceptions: _containers.RepeatedCompositeFieldContainer[FunctionStatus.ExceptionInformation]
    numSystemExceptions: int
    latestSystemExceptions: _containers.RepeatedCompositeFieldContainer[FunctionStatus.ExceptionInformation]
    averageLatency: float
    lastInvocationTime: int
    instanceId: str
    workerId: str
    numReceived: int
    numSourceExceptions: int
    latestSourceExceptions: _containers.RepeatedCompositeFieldContainer[FunctionStatus.ExceptionInformation]
    numSinkExceptions: int
    latestSinkExceptions: _containers.RepeatedCompositeFieldContainer[FunctionStatus.ExceptionInformation]
    run: FunctionStatus.Run
    def __init__(self, running: _Optional[bool] = ..., failureException: _Optional[str] = ..., numRestarts: _Optional[int] = ..., numSuccessfullyProcessed: _Optional[int] = ..., numUserExceptions: _Optional[int] = ..., latestUserExceptions: _Optional[_Iterable[_Union[FunctionStatus.ExceptionInformation, _Mapping]]] = ..., numSystemExceptions: _Optional[int] = ..., latestSystemExceptions: _Optional[_Iterable[_Union[FunctionStatus.ExceptionInformation, _Mapping]]] = ..., averageLatency: _Optional[float] = ..., lastInvocationTime: _Optional[int] = ..., instanceId: _Optional[str] = ..., workerId: _Optional[str] = ..., numReceived: _Optional[int] = ..., numSourceExceptions: _Optional[int] = ..., latestSourceExceptions: _Optional[_Iterable[_Union[FunctionStatus.ExceptionInformation, _Mapping]]] = ..., numSinkExceptions: _Optional[int] = ..., latestSinkExceptions: _Optional[_Iterable[_Union[FunctionStatus.ExceptionInformation, _Mapping]]] = ..., run: _Optional[_Union[FunctionStatus.Run, _Mapping]] = ...) -> None: ...

class FunctionStatusList(_message.Message):
    __slots__ = ("functionStatusList", "error")
    FUNCTIONSTATUSLIST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    functionStatusList: _containers.RepeatedCompositeFieldContainer[FunctionStatus]
    error: str
    def __init__(self, functionStatusList: _Optional[_Iterable[_Union[FunctionStatus, _Mapping]]] = ..., error: _Optional[str] = ...) -> None: ...

class MetricsData(_message.Message):
    __slots__ = ("receivedTotal", "processedSuccessfullyTotal", "systemExceptionsTotal", "userExceptionsTotal", "avgProcessLatency", "lastInvocation", "userMetrics", "receivedTotal_1min", "processedSuccessfullyTotal_1min", "systemExceptionsTotal_1min", "userExceptionsTotal_1min", "avgProcessLatency_1min", "metrics")
    class UserMetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class UserMetric(_message.Message):
        __slots__ = ("name", "kind", "help", "labels", "value", "bounds", "counts")
        class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            COUNTER: _ClassVar[MetricsData.UserMetric.Kind]
            GAUGE: _ClassVar[MetricsData.UserMetric.Kind]
            HISTOGRAM: _ClassVar[MetricsData.UserMetric.Kind]
        COUNTER: MetricsData.UserMetric.Kind
        GAUGE: MetricsData.UserMetric.Kind
        HISTOGRAM: MetricsData.UserMetric.Kind
        class LabelsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        NAME_FIELD_NUMBER: _ClassVar[int]
        KIND_FIELD_NUMBER: _ClassVar[int]
        HELP_FIELD_NUMBER: _ClassVar[int]
        LABELS_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        BOUNDS_FIELD_NUMBER: _ClassVar[int]
        COUNTS_FIELD_NUMBER: _ClassVar[int]
        name: str
        kind: MetricsData.UserMetric.Kind
        help: str
        labels: _containers.ScalarMap[str, str]
        value: float
        bounds: _containers.RepeatedScalarFieldContainer[float]
        counts: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[MetricsData.UserMetric.Kind, str]] = ..., help: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., value: _Optional[float] = ..., bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...
    RECEIVEDTOTAL_FIELD_NUMBER: _ClassVar[int]
    PROCESSEDSUCCESSFULLYTOTAL_FIELD_NUMBER: _ClassVar[int]
    SYSTEMEXCEPTIONSTOTAL_FIELD_NUMBER: _ClassVar[int]
    USEREXCEPTIONSTOTAL_FIELD_NUMBER: _ClassVar[int]
    AVGPROCESSLATENCY_FIELD_NUMBER: _ClassVar[int]
    LASTINVOCATION_FIELD_NUMBER: _ClassVar[int]
    USERMETRICS_FIELD_NUMBER: _ClassVar[int]
    RECEIVEDTOTAL_1MIN_FIELD_NUMBER: _ClassVar[int]
    PROCESSEDSUCCESSFULLYTOTAL_1MIN_FIELD_NUMBER: _ClassVar[int]
    SYSTEMEXCEPTIONSTOTAL_1MIN_FIELD_NUMBER: _ClassVar[int]
    USEREXCEPTIONSTOTAL_1MIN_FIELD_NUMBER: _ClassVar[int]
    AVGPROCESSLATENCY_1MIN_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    receivedTotal: int
    processedSuccessfullyTotal: int
    systemExceptionsTotal: int
    userExceptionsTotal: int
    avgProcessLatency: float
    lastInvocation: int
    userMetrics: _containers.ScalarMap[str, float]
    receivedTotal_1min: int
    processedSuccessfullyTotal_1min: int
    systemExceptionsTotal_1min: int
    userExceptionsTotal_1min: int
    avgProcessLatency_1min: float
    metrics: _containers.RepeatedCompositeFieldContainer[MetricsData.UserMetric]
    def __init__(self, receivedTotal: _Optional[int] = ..., processedSuccessfullyTotal: _Optional[int] = ..., systemExceptionsTotal: _Optional[int] = ..., userExceptionsTotal: _Optional[int] = ..., avgProcessLatency: _Optional[float] = ..., lastInvocation: _Optional[int] = ..., userMetrics: _Optional[_Mapping[str, float]] = ..., receivedTotal_1min: _Optional[int] = ..., processedSuccessfullyTotal_1min: _Optional[int] = ..., systemExceptionsTotal_1min: _Optional[int] = ..., userExceptionsTotal_1min: _Optional[int] = ..., avgProcessLatency_1min: _Optional[float] = ..., metrics: _Optional[_Iterable[_Union[MetricsData.UserMetric, _Mapping]]] = ...) -> None: ...

class HealthCheckResult(_message.Message):
    __slots__ = ("success",)
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    def __init__(self, success: _Optional[bool] = ...) -> None: ...

class Metrics(_message.Message):
    __slots__ = ("metrics",)
    class InstanceMetrics(_message.Message):
        __slots__ = ("name", "instanceId", "metricsData")
        NAME_FIELD_NUMBER: _ClassVar[int]
        INSTANCEID_FIELD_NUMBER: _ClassVar[int]
        METRICSDATA_FIELD_NUMBER: _ClassVar[int]
        name: str
        instanceId: int
        metricsData: MetricsData
        def __init__(self, name: _Optional[str] = ..., instanceId: _Optional[int] = ..., metricsData: _Optional[_Union[MetricsData, _Mapping]] = ...) -> None: ...
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[Metrics.InstanceMetrics]
    def __init__(self, metrics: _Optional[_Iterable[_Union[Metrics.InstanceMetrics, _Mapping]]] = ...) -> None: ...
