"""The public surface is what the lists say, no more; examples and documentation keep to it."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import magnetar
import pytest

ROOT = Path(magnetar.__file__).parent

PUBLIC: dict[str, set[str]] = {
    "magnetar": {
        "AsyncClient", "Client", "Context", "Function", "IdentitySerDe", "JsonSerDe", "MagnetarError", "PickleSerDe",
        "Record", "SerDe", "Sink", "Source", "batch_function",
    },
    "magnetar.api": {
        "Context", "Function", "FunctionMessageId", "IdentitySerDe", "JsonSerDe", "PickleSerDe", "SerDe",
        "BatchSource", "Batching", "DeadLetter", "EndOfInput", "Record", "RecordRefused", "Retry", "Sink",
        "SinkContext", "Source", "SourceContext", "option", "StateRefused", "StateStoreFailed", "StateUnavailable",
        "Trigger", "batch_function",
    },
    "magnetar.client": {
        "EARLIEST", "LATEST", "MessageId",
        "AsyncClient", "AsyncFunctions", "Client", "Functions", "Lock",
        "Consumer", "MergedConsumer", "PartitionedProducer", "Producer", "Reader",
        "ClientConfig", "ConsumerConfig", "ConsumerDeadLetterPolicy", "ConsumerInterceptor", "ConsumerStatistics",
        "ProducerInterceptor", "ProducerStatistics", "TableView", "ProducerConfig", "ReaderConfig",
        "ConsumerKeySharedPolicy", "NO_VALUE", "Base64Key",
        "DamagedEntry", "Message", "OutgoingEntry", "OutgoingMessage", "ReceivedEntry", "encode_entry",
        "BrokerError", "ClosedError", "ConnectionLost", "InvalidConfig", "InvalidTopicName", "MagnetarError",
        "MessageTooLarge", "OperationTimeout", "PackageError", "ProducerFenced", "ProtocolError", "QueueFull",
        "DeploymentFailed", "RequestRefused", "TopicNotFound", "TopicTerminated", "UnpicklableFunction",
        "ForeignProtocol", "Timeout",
        "Schema", "SchemaInfo", "SchemaSerializationError", "AvroSchema", "JsonSchema", "Float32", "Int32",
        "Base64Bytes",
        "Authentication", "AuthenticationBasic", "AuthenticationOAuth2", "AuthenticationTls", "AuthenticationToken",
        "AuthenticationError", "AuthorizationError", "CredentialsUnavailable", "TlsFailed",
        "CryptoError", "CryptoKeyReader", "EncryptionKey", "FileKeyReader", "NamedKeyReader", "UriKeyReader",
        "AutoConsumeSchema", "AutoProduceBytesSchema", "KeyValue", "KeyValueSchema", "ProtobufNativeSchema",
        "ProtobufSchema",
        "TypedConsumer", "TypedMessage", "TypedProducer", "TypedReader",
        "BooleanSchema", "BytesSchema", "DateSchema", "DoubleSchema", "FloatSchema", "InstantSchema",
        "Int8Schema", "Int16Schema", "Int32Schema", "Int64Schema", "LocalDateSchema", "LocalDateTimeSchema",
        "LocalTimeSchema", "StringSchema", "TimeSchema", "TimestampSchema",
    },
    "magnetar.spark": {
        "MagnetarSource", "Session", "SessionConfig", "open_session",
        "Java", "enable", "end_of", "find_java", "standalone_environment",
        "DataLoss", "InvalidConfig", "SparkFailed",
    },
    "magnetar.testing": {
        "BrokerThread", "FunctionFailed", "FunctionTest", "NoOutput",
        "Operation", "SimulatedCrash", "SimulatedDisk", "SimulatedFile", "SimulatedLock",
    },
}  # fmt: skip
"""Package -> what users may import from it."""

NEEDS_SPARK = {"MagnetarSource", "end_of"}


@pytest.mark.parametrize("package", PUBLIC)
def test_package_lists_its_public_names(package: str) -> None:
    listed = importlib.import_module(package).__all__
    assert len(listed) == len(set(listed))
    assert set(listed) == PUBLIC[package]


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_can_be_imported(package: str) -> None:
    module = importlib.import_module(package)
    for name in PUBLIC[package] - NEEDS_SPARK:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize(
    ("package", "not_imported"),
    [
        ("magnetar", ["magnetar.api", "magnetar.client"]),
        (
            "magnetar.client",
            ["magnetar.client.blocking", "magnetar.client.deploy.functions", "httpx", "cloudpickle", "cryptography"],
        ),
        ("magnetar.spark", ["pyspark", "pyarrow", "magnetar.spark.session", "magnetar.client"]),
    ],
)
def test_package_imports_costly_modules_at_their_first_use(package: str, not_imported: list[str]) -> None:
    code = f"import sys, {package}; print(*(set({not_imported}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def users_code() -> Iterator[tuple[str, str]]:
    """Every example, and every block of Python in the documentation, with its name."""
    for example in sorted(ROOT.glob("examples/**/*.py")):
        yield str(example.relative_to(ROOT)), example.read_text()
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))):
        for number, block in enumerate(
            re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        ):
            yield f"{page.relative_to(ROOT)}, block {number}", block


def used_names(source: str) -> Iterator[str]:
    """The names of our packages that code imports, or reads of ``magnetar`` itself."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] == "magnetar")
            case ast.ImportFrom(module=str() as module, names=names) if module.split(".")[0] == "magnetar":
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Attribute(value=ast.Name(id="magnetar"), attr=name):
                yield f"magnetar.{name}"


@pytest.mark.parametrize(("where", "source"), [pytest.param(*found, id=found[0]) for found in users_code()])
def test_examples_and_documentation_import_public_names_only(where: str, source: str) -> None:
    public = {*PUBLIC, *(f"{package}.{name}" for package, names in PUBLIC.items() for name in names)}
    assert not set(used_names(source)) - public


@pytest.mark.slow
def test_broker_thread_works_as_the_documentation_shows(tmp_path: Path) -> None:
    [block] = [source for where, source in users_code() if where.startswith("docs/how-to/test-with-the-broker.md")]
    subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True, timeout=60)
