"""`functions_worker.yml`: each of Pulsar's keys works, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.failure import Failure
from magnetar.cli.servers.config_file import STANDALONE_KEYS, WORKER_KEYS
from magnetar.cli.servers.security_keys import AUTHORIZATION_KEYS, SECURITY_KEYS, TLS_KEYS, WORKER_CLIENT_KEYS
from magnetar.cli.servers.server_file import read_server_file
from magnetar.cli.servers.worker import worker_config
from magnetar.errors import InvalidConfig
from magnetar.worker.config import WorkerConfig

FILE = """
workerId: w7
workerHostname: 127.0.0.1
bindAddress: 0.0.0.0
workerPort: 6760
webServiceAllowedHosts: [functions.example.com, worker]
pulsarServiceUrl: pulsar://broker:6650
pulsarWebServiceUrl: http://broker:8080
pulsarFunctionsNamespace: public/magnetar
pulsarFunctionsCluster: east
functionMetadataTopicName: m
functionAssignmentTopicName: a
clusterCoordinationTopicName: c
failureCheckFreqMs: 500
instanceLivenessCheckFreqMs: 20000
sparkMaster: spark://a:7077
sparkDriverMemory: 512m
tlsEnabled: true
workerPortTls: 6761
sparkStartAhead: false
sparkClassArchive: false
sparkIdleTimeoutSec: 60
secretsProviderClassName: vault.Vault
secretsProviderConfig: {path: /run/secrets, retries: 3}
sparkSettings: {spark.cores.max: 4, spark.ui.enabled: true, spark.executor.memory: 512m}
processRuntimeUsers: {acme: fn-acme, "*": fn-others}
rescheduleTimeoutMs: 3000
rebalanceCheckFreqSec: 60
topicCompactionFrequencySec: 900
stateStorageServiceUrl: bk://broker:4181
stateStorageTokenSecretKey: /run/state.key
initialBrokerReconnectMaxRetries: 5
additionalEnabledFunctionsUrlPatterns: ['https://a/.*', 'file:///opt/functions/.*']
additionalEnabledConnectorUrlPatterns: []
"""

IN_FORCE = """
numFunctionPackageReplicas: 1
useCompactedMetadataTopic: true
functionsWorkerEnablePackageManagement: false
schedulerClassName: org.apache.pulsar.functions.worker.scheduler.RoundRobinScheduler
functionRuntimeFactoryClassName: org.apache.pulsar.functions.runtime.process.ProcessRuntimeFactory
functionRuntimeFactoryConfigs: {logDirectory: logs/, javaInstanceJarLocation: }
authenticationEnabled: false
authorizationEnabled: false
tlsEnabled: false
useTls: false
superUserRoles: []
properties: {}
"""


def read(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "functions_worker.yml"
    path.write_text(text)
    return read_server_file(str(path), WORKER_KEYS, "worker")["worker"]


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(Failure) as caught:
        read(tmp_path, text)
    return str(caught.value).split("functions_worker.yml: ")[1]


def test_every_key_sets_what_it_names(tmp_path: Path) -> None:
    config = WorkerConfig(data_dir=tmp_path, **read(tmp_path, FILE))
    elsewhere = {*TLS_KEYS, *SECURITY_KEYS, *AUTHORIZATION_KEYS, *WORKER_CLIENT_KEYS}  # test_security_settings
    own = set(WORKER_KEYS) - elsewhere - {"sparkRemote", "useTls"}  # refused; only checked
    assert {line.split(":")[0] for line in FILE.split("\n") if line} == own
    assert config.worker_tls_port == 6761
    assert (config.worker_id, config.advertised_host, config.worker_port) == ("w7", "127.0.0.1", 6760)
    assert config.host == "0.0.0.0"
    assert config.secrets_provider == "vault.Vault"
    assert config.secrets_config == {"path": "/run/secrets", "retries": 3}
    assert config.process_users == {"acme": "fn-acme", "*": "fn-others"}
    assert config.allowed_hosts == ("functions.example.com", "worker")
    assert (config.service_url, config.admin_url) == ("pulsar://broker:6650", "http://broker:8080")
    assert (config.functions_namespace, config.cluster) == ("public/magnetar", "east")
    assert (config.metadata_topic, config.assignments_topic, config.coordination_topic) == ("m", "a", "c")
    assert (config.failure_check_ms, config.reschedule_timeout_ms) == (500, 3000)
    assert config.liveness_check_ms == 20000
    assert config.function_url_patterns == ("https://a/.*", "file:///opt/functions/.*")
    assert config.connector_url_patterns == ()
    assert (config.state_url, config.state_key_file) == ("bk://broker:4181", "/run/state.key")
    assert (config.spark_master, config.spark_driver_memory, config.spark_idle_s) == ("spark://a:7077", "512m", 60)
    assert (config.spark_starts_ahead, config.spark_class_archive) == (False, False)
    assert not config.spark().starts_ahead
    assert not config.spark().session().class_archive
    assert config.spark_settings == {
        "spark.cores.max": "4", "spark.ui.enabled": "true", "spark.executor.memory": "512m"
    }  # fmt: skip
    assert (config.rebalance_check_s, config.compaction_s, config.broker_wait_s) == (60, 900, 5)


def test_what_happens_anyway_may_be_said(tmp_path: Path) -> None:
    assert read(tmp_path, IN_FORCE) == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("workerID: x", "unknown key workerID; did you mean workerId?; docs/cli.md lists the known keys"),
        (
            "numFunctionPackageReplicas: 3",
            "numFunctionPackageReplicas: invalid value 3: packages are topics, stored only once",
        ),
        ("superUserRoles: 4", "superUserRoles: invalid value 4: expected a list of words"),
        (
            "rescheduleTimeoutMs: -1",
            "rescheduleTimeoutMs: invalid value -1: invalid reschedule_timeout_ms -1: must be positive",
        ),
        (
            "processRuntimeUsers: {a/b: c}",
            "processRuntimeUsers: invalid value {'a/b': 'c'}: invalid processRuntimeUsers entry 'a/b': 'c'",
        ),
        ("processRuntimeUsers: [c]", "processRuntimeUsers: invalid value ['c']: expected system users by tenant"),
        ("sparkSettings: 4", "sparkSettings: invalid value 4: expected names and values of Spark settings"),
        (
            "sparkRemote: sc://a:15002",
            "sparkRemote: invalid value 'sc://a:15002': Spark Connect servers are not supported: functions"
            " require their own driver",
        ),
        ("rescheduleTimeoutMs: soon", "rescheduleTimeoutMs: invalid value 'soon': expected a whole number"),
    ],
)
def test_wrong_line_is_refused_by_name(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(tmp_path, line).startswith(message)


def test_nested_value_without_an_effect_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(tmp_path, "functionRuntimeFactoryConfigs: {logDirectory: /x, jobNamespace: a}") == {}
    first, second = caplog.messages
    assert ": functionRuntimeFactoryConfigs.logDirectory=/x has no effect: logs are stored in --data-dir" in first
    assert ": functionRuntimeFactoryConfigs.jobNamespace=a has no effect: " in second


def test_standalone_logs_that_use_tls_of_its_worker_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "standalone.conf"
    path.write_text("useTls=true\n")
    assert read_server_file(str(path), STANDALONE_KEYS, "broker", "worker")["worker"] == {}
    assert "useTls=true has no effect: " in caplog.text


def test_use_tls_needs_an_address_with_tls(tmp_path: Path) -> None:
    path = tmp_path / "functions_worker.yml"
    path.write_text("useTls: true\n")
    in_file = read_server_file(str(path), WORKER_KEYS, "worker")
    urls = {"service_url": "pulsar+ssl://b:6651", "admin_url": "https://b:8443"}
    assert worker_config(in_file, in_file["worker"] | urls, tmp_path).service_url == "pulsar+ssl://b:6651"
    with pytest.raises(Failure, match="useTls is true, but the broker address is 'pulsar://b:6650': use pulsar"):
        worker_config(in_file, in_file["worker"] | urls | {"service_url": "pulsar://b:6650"}, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"executor.memory": "2g"}, "'executor.memory' is not a Spark setting: names start with 'spark.'"),
        ({"spark.driver.memory": "2g"}, "spark.driver.memory cannot be set here: the heap is configured separately"),
    ],
)
def test_a_setting_of_spark_without_effect_is_refused(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match="sparkMaster, sparkDriverMemory or sparkSettings: ") as caught:
        WorkerConfig(service_url="", admin_url="http://b", data_dir=tmp_path, spark_settings=settings)
    assert message in str(caught.value)
