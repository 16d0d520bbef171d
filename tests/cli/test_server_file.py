"""The `--config` file of servers: Pulsar's own files start unchanged, and no changed line is silently ignored."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.config import BrokerConfig
from magnetar.broker.storage.config import StorageConfig
from magnetar.cli.failure import Failure, Faults
from magnetar.cli.servers.config_file import BROKER_KEYS, STANDALONE_KEYS, WORKER_KEYS
from magnetar.cli.servers.promises import broken_promise
from magnetar.cli.servers.pulsar_keys import is_same, pulsar_keys, reason_of
from magnetar.cli.servers.server_file import read_server_file
from magnetar.cli.servers.worker import worker_config

from tests.support.command import call
from tests.support.servers import running

PULSAR = Path(__file__).parent / "pulsar_conf"
"""Keys with their default values in the files of Pulsar 4.0; those of 2.10 and 3.0 are in folders below."""
VERSIONS = {"4.0": PULSAR, "3.0": PULSAR / "3.0", "2.10": PULSAR / "2.10"}
TABLES: dict[str, Any] = {"broker": BROKER_KEYS, "worker": WORKER_KEYS}
WITHOUT_EFFECT = [
    (file, name, values) for file in TABLES for name, values in pulsar_keys(file).items() if name not in TABLES[file]
]


def read(tmp_path: Path, text: str, name: str = "broker.conf") -> dict[str, dict[str, Any]]:
    path = tmp_path / name
    path.write_text(text)
    return read_server_file(str(path), BROKER_KEYS, "broker")


def faults(tmp_path: Path, text: str, name: str = "broker.conf") -> tuple[str, ...]:
    with pytest.raises(Faults) as caught:
        read(tmp_path, text, name)
    assert caught.value.exit_code == 1
    return tuple(line.split(f"{name}: ", 1)[1] for line in caught.value.lines)


def stock(version: str, name: str, caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, Any]]:
    """Read a file of Pulsar as it is shipped; no key of it may be worth a line of its own."""
    keys: dict[str, Any] = {"broker.conf": BROKER_KEYS, "standalone.conf": STANDALONE_KEYS}
    tables = {"broker.conf": ("broker",), "standalone.conf": ("broker", "worker")}
    caplog.clear()
    with caplog.at_level(logging.INFO):
        path = str(VERSIONS[version] / name)
        found = read_server_file(path, keys.get(name, WORKER_KEYS), *tables.get(name, ("worker",)))
    [line] = caplog.messages
    assert re.fullmatch(rf"--config {path}: ignored [0-9]+ keys without effect that have Pulsar's default value", line)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_broker_conf_of_pulsar_is_taken_unchanged(version: str, caplog: pytest.LogCaptureFixture) -> None:
    found = stock(version, "broker.conf", caplog)
    config = BrokerConfig(**found["broker"])
    StorageConfig(**found["storage"])
    assert (config.host, config.broker_port, config.web_port) == ("0.0.0.0", 6650, 8080)
    assert config.cluster == "standalone"  # `clusterName=` says nothing
    assert config.metadata_store_url == ""
    assert config.metadata_timeout_s == 30
    assert config.acknowledge_inside_batches is False  # the file's word, where our own default is another
    assert config.auto_topic_partitions == 0  # defaultNumPartitions=1 counts for the type `partitioned` only
    assert config.delete_inactive_topics is True
    assert config.subscription_types == ("Exclusive", "Shared", "Failover", "Key_Shared")
    assert config.max_read_bytes == 5 * 1024 * 1024


@pytest.mark.parametrize("version", VERSIONS)
def test_standalone_conf_of_pulsar_is_taken_unchanged(version: str, caplog: pytest.LogCaptureFixture) -> None:
    found = stock(version, "standalone.conf", caplog)
    assert BrokerConfig(**found["broker"]).cluster == "standalone"
    assert found["worker"] == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_functions_worker_yml_of_pulsar_is_taken_unchanged(
    version: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    in_file = stock(version, "functions_worker.yml", caplog)
    worker_config(in_file, dict(in_file["worker"]), tmp_path)
    found = in_file["worker"]
    assert (found["worker_id"], found["failure_check_ms"], found["broker_wait_s"]) == ("standalone", 30000, 60)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["broker.conf", "standalone.conf", "functions_worker.yml"])
def test_fixtures_hold_keys_and_values_alone(name: str, version: str) -> None:
    lines = (VERSIONS[version] / name).read_text().splitlines()
    assert len(lines) > 70
    assert all(re.match(r"\s*[\w.]+[=:]", line) for line in lines)


@pytest.mark.parametrize(
    ("file", "name", "values"), WITHOUT_EFFECT, ids=lambda value: value if isinstance(value, str) else ""
)
def test_key_without_an_effect_is_logged_unless_it_has_a_default_value(
    tmp_path: Path, file: str, name: str, values: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.conf"
    for value in values:
        path.write_text(f"{name}={value}\n")
        assert not any(read_server_file(str(path), TABLES[file], file).values())
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    path.write_text(f"{name}=987654321\n")
    if broken_promise(name, "987654321") is not None:
        with pytest.raises(Faults):
            read_server_file(str(path), TABLES[file], file)
        return
    assert not any(read_server_file(str(path), TABLES[file], file).values())
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    is_secret = re.search(
        "(AuthenticationParameters|Params)$|(?i:password|secret|credential|private_?key|access_?key|token)", name
    )
    reason = reason_of(name, file)
    assert reason is not None
    assert line == f"--config {path}: {name}{'' if is_secret else '=987654321'} has no effect: {reason}"


def test_value_of_a_map_that_may_hold_secrets_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "worker.yml"
    path.write_text("secretsProviderConfiguratorConfig: {token: hunter2, path: {deeper: hunter2}}\n")
    read_server_file(str(path), TABLES["worker"], "worker")
    assert "secretsProviderConfiguratorConfig" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        "loadBalancerSheddingIntervalMinutes=7", "brokerShutdownTimeoutMs=1", "zooKeeperSessionTimeoutMillis=12345",
        "transactionCoordinatorEnabled=true", "clientLibraryVersionCheckAllowUnversioned=false",
        "topicLevelPoliciesEnabled=maybe", "managedLedgerDefaultWriteQuorum=0", "bookkeeper_anything=1",
        "bookkeeper_tlsHostnameVerificationEnabled=true", "brokerClient_operationTimeoutMs=1",
        "functionsWorkerEnabled=true",
    ],
)  # fmt: skip
def test_harmless_value_without_an_effect_is_one_line_in_the_log(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    read(tmp_path, line + "\n")
    [message] = caplog.messages
    assert f": {line} has no effect: " in message


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("broker", "managedLedgerDefaultWriteQuorum=3", "each entry is stored only once"),
        ("broker", "managedLedgerDefaultAckQuorum=three", "each entry is stored only once"),
        ("broker", "bookkeeperClientEnforceMinNumRacksPerWriteQuorum=true", "not in several racks"),
        ("broker", "packagesReplicas=2", "packages are topics, stored only once"),
        ("broker", "enableNonPersistentTopics=false", "non-persistent topics, which may lose messages"),
        ("broker", "backlogQuotaCheckEnabled=false", "backlog quotas are always enforced"),
        ("broker", "schemaRegistryCompatibilityCheckers=com.example.Checker", "schemas are always checked"),
        ("broker", "authorizationProvider=com.example.Provider", "permissions are always checked"),
        ("broker", "entryFilterNames=secret-messages", "Java classes cannot be loaded"),
        ("broker", "brokerClient_tlsTrustCertsFilePath=/x", "configure authentication and TLS of this client with"),
        ("broker", "tlsEnabledWithKeyStore=true", "only PEM files are supported"),
        ("broker", "brokerClientTlsEnabledWithKeyStore=true", "only PEM files are supported"),
        ("broker", "sslFactoryPlugin=com.example.Factory", "OpenSSL provides TLS"),
        ("broker", "webServiceTlsProtocols=TLSv1.3", "set tlsCiphers and tlsProtocols"),
        ("broker", "brokerClientTlsProtocols=TLSv1.3", "cannot be restricted"),
        ("broker", "metadataStoreConfigPath=/x", "the file is not read"),
        ("broker", "tlsEnabled=true", "set brokerServicePortTls or webServicePortTls"),
        ("worker", "functionInstanceMaxResources={ram: 1}", "resource limits for functions"),
        ("worker", "functionAuthProviderClassName=com.example.Provider", "credentials from the worker"),
        ("worker", "numFunctionPackageReplicas=3", "packages are topics, stored only once"),
        (
            "worker",
            "functionRuntimeFactoryClassName=org.apache.pulsar.functions.runtime.kubernetes.KubernetesRuntimeFactory",
            "functions run as threads, processes or Spark applications",
        ),
    ],
)
def test_value_that_would_break_a_promise_is_refused(tmp_path: Path, file: str, line: str, words: str) -> None:
    path = tmp_path / "a.conf"
    path.write_text(line)
    with pytest.raises(Faults) as caught:
        read_server_file(str(path), TABLES[file], file)
    [fault] = caught.value.lines
    assert words in fault
    assert line.partition("=")[0] in fault


def test_tls_enabled_beside_a_port_with_tls_says_what_holds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(tmp_path, "tlsEnabled=true\nbrokerServicePortTls=6651\n")["broker"] == {"broker_tls_port": 6651}
    assert caplog.messages == []


def test_all_faults_of_a_file_are_reported_at_once_in_their_order(tmp_path: Path) -> None:
    text = """
brokerServicePrt=1
maxMessageSize=many
authorizationProvider=x.Y
keepAliveIntervalSeconds=0
clusterName=a
webServicePort=-1
"""
    assert faults(tmp_path, text) == (
        "unknown key brokerServicePrt; did you mean brokerServicePort?; docs/cli.md lists the known keys",
        "maxMessageSize: invalid value 'many': expected a whole number",
        "authorizationProvider: invalid value 'x.Y': permissions are always checked by the built-in provider"
        " (docs/security.md): remove the line",
        "keepAliveIntervalSeconds: invalid value '0': keep_alive_s=0.0 is out of range: expected 0.05 to 86400",
        "webServicePort: invalid value '-1': web_port=-1 is out of range: expected 0 to 65535",
    )


@pytest.mark.slow
def test_faults_are_a_line_each_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("abc=1\nauthorizationProvider=x\n")
    answer = call("broker", "--data-dir", str(tmp_path / "data"), "--config", str(tmp_path / "broker.conf"))
    lines = [line for line in answer.err.splitlines() if " INFO " not in line]
    assert answer.code == 1
    assert [line.startswith("magnetar: --config ") for line in lines] == [True, True]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["broker.yml", "broker.yaml", "broker.conf", "broker.properties", "broker"])
def test_yaml_and_lines_with_an_equals_sign_say_the_same(tmp_path: Path, name: str) -> None:
    expected = {"cluster": "mine", "broker_port": 0, "allow_auto_topic_creation": False, "failover_delay_s": 0.5}
    lines = ("# a=b\nclusterName{}mine", "brokerServicePort{}0", "allowAutoTopicCreation{}false")
    by = ": " if name.endswith(("yml", "yaml")) else "="
    text = "\n".join((*lines, "activeConsumerFailoverDelayTimeMillis{}500\nadvertisedAddress{}\n")).replace("{}", by)
    assert read(tmp_path, text, name)["broker"] == expected


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("allowAutoTopicCreationType=partitioned\ndefaultNumPartitions=4", "auto_topic_partitions", 4),
        ("defaultNumPartitions=4\nallowAutoTopicCreationType=non-partitioned", "auto_topic_partitions", 0),
        ("allowAutoTopicCreationType=partitioned", "auto_topic_partitions", 1),
        ("defaultNumPartitions=3", "auto_topic_partitions", 3),
        ("zookeeperServers=a:2181,b:2181", "metadata_store_url", "zk:a:2181,b:2181"),
        ("zookeeperServers=a:2181\nmetadataStoreUrl=zk:b:1", "metadata_store_url", "zk:b:1"),
        ("metadataStoreUrl=a:2181/x", "metadata_store_url", "zk:a:2181/x"),
        ("metadataStoreUrl=zk:a:1\nconfigurationMetadataStoreUrl=a:1", "metadata_store_url", "zk:a:1"),
        ("zooKeeperOperationTimeoutSeconds=7\nmetadataStoreOperationTimeoutSeconds=30", "metadata_timeout_s", 7),
        ("zooKeeperOperationTimeoutSeconds=-1\nmetadataStoreOperationTimeoutSeconds=30", "metadata_timeout_s", 30),
    ],
)
def test_keys_that_belong_together_and_former_names_mean_what_pulsar_means(
    tmp_path: Path, text: str, field: str, value: object
) -> None:
    assert read(tmp_path, text)["broker"][field] == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("configurationStoreServers=other:2181", "are stored with all other metadata"),
        ("metadataStoreUrl=rocksdb:/tmp/x", "unknown metadata store in"),
        ("allowAutoTopicCreationType=both", "expected partitioned or non-partitioned"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(tmp_path: Path, text: str, words: str) -> None:
    [fault] = faults(tmp_path, text)
    assert words in fault


@pytest.mark.parametrize("name", ["broker.conf", "broker.yml"])
def test_file_that_is_no_text_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"clusterName: \xff\n")
    with pytest.raises(Failure, match="is not valid UTF-8: byte 13 is 0xff"):
        read_server_file(str(tmp_path / name), BROKER_KEYS, "broker")
    with pytest.raises(Failure, match="cannot be read"):
        read_server_file(str(tmp_path), BROKER_KEYS, "broker")


@given(
    st.dictionaries(st.sampled_from(sorted({*BROKER_KEYS, *pulsar_keys("broker"), "nonsense"})), st.text(max_size=12))
)
def test_any_values_are_read_or_refused_a_line_each(
    tmp_path_factory: pytest.TempPathFactory, lines: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()).replace("\\", ""), newline="")
    lines_wrong: tuple[str, ...] = ()
    try:
        BrokerConfig(**read_server_file(str(path), BROKER_KEYS, "broker")["broker"])
    except Faults as exc:
        lines_wrong = exc.lines
    assert all(line.startswith(f"--config {path}: ") for line in lines_wrong)


@pytest.mark.parametrize(
    ("given", "accepted", "same"),
    [("TRUE", "true", True), ("50", "50.0", True), ("b, a", "a,b", True), ("1e1", "10", False), ("x", "X", False)],
)
def test_values_are_compared_as_settings(given: str, accepted: str, same: bool) -> None:
    assert is_same(given, accepted) is same


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "name"), [("broker", "broker.conf"), ("standalone", "standalone.conf")])
def test_server_starts_with_pulsars_own_file(tmp_path: Path, kind: str, name: str) -> None:
    with running(kind, tmp_path, "--config", str(PULSAR / name)) as it:
        client = pulsar.Client(str(it.service_url))
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"x")
        assert consumer.receive(10_000).data() == b"x"
        client.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_worker_starts_with_pulsars_own_file(tmp_path: Path) -> None:
    with running("broker", tmp_path / "broker") as it:
        flags = ("--config", str(PULSAR / "functions_worker.yml"), "--host", "127.0.0.1")
        urls = ("--service-url", str(it.service_url), "--admin-url", str(it.web_url))
        with running("worker", tmp_path / "worker", *flags, *urls):
            [worker] = call("functions-worker", "get-cluster", "-o", "json", admin_url=it.web_url).ok().json()
            assert worker["workerId"] == "standalone"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_client_finds_topics_of_a_broker_that_listens_on_all_addresses(tmp_path: Path) -> None:
    with running("broker", tmp_path, "--config", str(PULSAR / "broker.conf"), "--insecure") as it:
        port = str(it.service_url).rpartition(":")[2]
        client = pulsar.Client(f"pulsar://127.0.0.1:{port}")
        client.create_producer("t").send(b"x")
        client.close()
        web_port = str(it.web_url).rpartition(":")[2]
        for host in ("127.0.0.1", "localhost"):
            found = httpx.get(f"http://{host}:{web_port}/lookup/v2/topic/persistent/public/default/t").json()
            assert found["brokerUrl"] == f"pulsar://{host}:{port}"
