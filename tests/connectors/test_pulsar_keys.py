"""Keys of Pulsar's own connectors: each is a field, or is refused in words that are about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from magnetar.api.connector_config import Refusal, Unsupported, fields_of, option, read_config, unsupported_by
from magnetar.connectors.register import BUILT_IN, find
from magnetar.errors import InvalidConfig

_KAFKA = (
    "bootstrapServers topic securityProtocol saslMechanism saslJaasConfig sslEnabledProtocols"
    " sslEndpointIdentificationAlgorithm sslTruststoreLocation sslTruststorePassword copyHeadersEnabled"
)
_RABBITMQ = (
    "connectionName host port virtualHost username password requestedChannelMax requestedFrameMax connectionTimeout"
    " handshakeTimeout requestedHeartbeat ssl exchangeName routingKey"
)
PULSARS = {
    ("source", "kafka"): f"{_KAFKA} groupId fetchMinBytes autoCommitEnabled autoCommitIntervalMs sessionTimeoutMs"
    " heartbeatIntervalMs autoOffsetReset keyDeserializationClass valueDeserializationClass consumerConfigProperties",
    ("sink", "kafka"): f"{_KAFKA} acks batchSize maxRequestSize keySerializerClass valueSerializerClass"
    " producerConfigProperties",
    ("source", "rabbitmq"): f"{_RABBITMQ} queueName prefetchCount prefetchGlobal passive durable exclusive autoDelete",
    ("sink", "rabbitmq"): f"{_RABBITMQ} exchangeType queueName",
    **{
        ("sink", f"jdbc-{database}"): "jdbcUrl userName password tableName key nonKey batchSize timeoutMs insertMode"
        " nullValueAction useTransactions useJdbcBatch excludeNonDeclaredFields maxQueueSize"
        for database in ("postgres", "mariadb", "sqlite")
    },
    ("sink", "redis"): "redisHosts redisPassword redisDatabase clientMode autoReconnect requestQueue tcpNoDelay"
    " keepAlive connectTimeout operationTimeout batchTimeMs batchSize redisUser redisUseTls redisTlsVerifyPeer"
    " redisTlsTrustStorePath redisTlsTrustStoreType redisTlsTrustStorePassword",
    ("sink", "elastic_search"): "elasticSearchUrl indexName username password token apiKey schemaEnable"
    " createIndexIfNeeded indexNumberOfShards indexNumberOfReplicas typeName maxRetries retryBackoffInMs"
    " maxRetryTimeInSec bulkEnabled bulkActions bulkSizeInMb bulkConcurrentRequests bulkFlushIntervalInMs"
    " compressionEnabled connectTimeoutInMs connectionRequestTimeoutInMs connectionIdleTimeoutInMs socketTimeoutInMs"
    " keyIgnore primaryFields nullValueAction malformedDocAction stripNulls stripNonPrintableCharacters"
    " canonicalKeyFields copyKeyFields conditionalIdHashing idHashingAlgorithm compatibilityMode ssl",
    ("sink", "mongo"): "mongoUri database collection batchSize batchTimeMs",
    ("sink", "http"): "url headers httpMethod",
    ("source", "file"): "inputDirectory recurse keepFile fileFilter pathFilter minimumFileAge maximumFileAge"
    " minimumSize maximumSize ignoreHiddenFiles pollingInterval numWorkers processedFileSuffix",
    ("source", "http"): "type host port numberOfThreads",  # Pulsar's is called netty
    ("source", "data-generator"): "sleepBetweenMessages",
    ("source", "debezium-postgres"): "database.hostname database.port database.user database.password database.dbname"
    " database.server.name topic.prefix schema.whitelist schema.include.list table.include.list plugin.name slot.name"
    " publication.name snapshot.mode topic.namespace offset.storage.topic database.history.pulsar.topic"
    " database.history.pulsar.service.url key.converter value.converter",
    ("sink", "influxdb"): "influxdbUrl username password database consistencyLevel retentionPolicy token organization"
    " bucket precision logLevel gzipEnable batchTimeMs batchSize",
}
"""The keys of each connector of Pulsar that has a counterpart, by the kind and the name."""
KEYS = [(kind, name, key) for (kind, name), keys in PULSARS.items() for key in keys.split()]
REFUSALS = [
    pytest.param(kind, name, key, refusal, id=f"{name}-{kind}-{key}")
    for name, built in BUILT_IN.items()
    for kind in ("source", "sink")
    if getattr(built, kind)
    for key, refusal in unsupported_by(find(kind, name).config).items()
]
UNHEARD_OF = "neverHeardOf"


def fault(config: type[Any], given: dict[str, Any], secrets: dict[str, str] | None = None) -> str:
    """Return what is wrong with a configuration that has all that is required; empty for nothing."""
    required = {
        field.key: field.choices[0] if field.choices else {str: "x", list: ["x"], int: 1}[field.type]
        for field in fields_of(config)
        if field.is_required and field.key not in given
    }
    try:
        read_config(config, required | given, secrets)
    except InvalidConfig as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("kind", "name", "key"), KEYS)
def test_each_key_is_a_field_or_is_refused_in_words_of_its_own(kind: str, name: str, key: str) -> None:
    config = find(kind, name).config
    known = {one for field in fields_of(config) for one in (field.key, *field.aliases)}
    refused = unsupported_by(config)
    assert (key in known) != (key in refused)
    for value in ("no value of it", ["x"], {"a": 1}):
        text = fault(config, {key: value})
        assert "unknown field" not in text
        if key in refused:
            assert text.startswith(f"{key} cannot be set")
            assert text.endswith(f": {refused[key].reason}")


@pytest.mark.parametrize(("kind", "name", "key", "refusal"), REFUSALS)
def test_values_that_say_what_is_done_anyway_are_taken(kind: str, name: str, key: str, refusal: Refusal) -> None:
    config = find(kind, name).config
    for value in (None, *refusal.allowed):
        assert fault(config, {key: value}) == ""
    assert f"; unknown field {UNHEARD_OF}" in fault(config, {key: "x", UNHEARD_OF: 1})
    assert fault(config, {}, {key: "x"}).startswith(f"secrets: {key} cannot be set")


@dataclass
class PumpConfig:
    """One field, and two keys that have none."""

    unsupported: ClassVar[Unsupported] = {
        "pool": Refusal("there is one pipe", (1, False)),
        "pressure": Refusal("a field has it"),
    }
    pressure: int = option("Of the pump.", default=1)


@dataclass
class Odd:
    """A field with the name of the attribute."""

    unsupported: dict[str, Any] = option("Anything.", default={})  # noqa: RUF009  it makes a field()
    other: str = option("Text.", default="")


def test_a_refusal_says_which_values_are_taken() -> None:
    for taken in (1, "1", False, "False", None):
        assert read_config(PumpConfig, {"pool": taken}) == PumpConfig()
    for refused in (2, True, "", "x", [], [1], {}, {"a": 1}, 1.5):
        with pytest.raises(InvalidConfig, match=r"^pool cannot be set to anything but 1 or false: there is one pipe$"):
            read_config(PumpConfig, {"pool": refused})


def test_a_field_goes_before_a_refusal_and_may_have_its_name() -> None:
    assert read_config(PumpConfig, {"pressure": 7}).pressure == 7
    assert set(unsupported_by(PumpConfig)) == {"pool"}
    assert read_config(Odd, {"unsupported": {"other": 1}}).unsupported == {"other": 1}
    assert unsupported_by(Odd) == {}
