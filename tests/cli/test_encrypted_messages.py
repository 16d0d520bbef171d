"""`magnetar produce` and `magnetar consume` with encrypted messages."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from magnetar.cli.main import main
from magnetar.testing.broker_thread import BrokerThread

from tests.cli.test_produce_lines import broker as broker
from tests.support.servers import COMMAND

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The URIs of a public and a private key."""
    directory: Path = tmp_path_factory.mktemp("keys")
    key = rsa.generate_private_key(65537, 2048)
    public, private = directory / "public.pem", directory / "private.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return public.as_uri(), private.as_uri()


@pytest.fixture
def at(broker: BrokerThread) -> list[str]:
    return ["--service-url", broker.service_url]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["messages", "lines"])
def test_messages_are_encrypted_and_printed_with_the_key(
    at: list[str], keys: tuple[str, str], tmp_path: Path, capsys: Capture, kind: str
) -> None:
    public, private = keys
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    given = ["-m", "one", "-m", "two"] if kind == "messages" else ["--lines", str(tmp_path / "lines")]
    topic = f"encrypted-{kind}"
    assert main([*at, "produce", topic, *given, "-ekn", "k", "-ekv", public]) == 0
    flags = ["consume", topic, "-s", "s", "-p", "Earliest", "-n", "2"]
    assert main([*at, *flags, "-ekv", private]) == 0
    shown = capsys.readouterr().out
    assert "content:one" in shown
    assert "content:two" in shown
    assert main([*at, *flags[:3], "raw", *flags[4:6], "-n", "1", "-ca", "CONSUME", "-p", "Earliest"]) == 0
    assert "content:one" not in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_missing_is_named(at: list[str], keys: tuple[str, str], capsys: Capture) -> None:
    for flags, why in (
        (["-ekn", "k"], "--encryption-key-value is missing: encryption requires both the key name and the"),
        (["-ekv", keys[0]], "--encryption-key-name is missing"),
        (["-ekn", "k", "-ekv", "file:///missing.pem"], "encryption key k: cannot read the public key /missing.pem"),
        (["-ekn", "k", "-ekv", keys[1]], "encryption key k: not a public key in PEM format"),
    ):
        assert main([*at, "produce", "t", "-m", "x", *flags]) == 1
        assert capsys.readouterr().err.startswith(f"magnetar: {why}")


@pytest.mark.slow
def test_why_a_message_is_not_given_out_is_shown(at: list[str], keys: tuple[str, str], capsys: Capture) -> None:
    assert main([*at, "produce", "kept", "-m", "x", "-ekn", "k", "-ekv", keys[0]]) == 0
    command = [*COMMAND, *at, "consume", "kept", "-s", "s", "-p", "Earliest"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert said.startswith("magnetar: persistent://public/default/kept: cannot deliver entry ")
    assert said.endswith("is encrypted, and the consumer has no crypto_key_reader\n")
