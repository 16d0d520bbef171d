"""Authentication and TLS of commands: where they may stand, what wins, and what is said of wrong ones."""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
from magnetar.cli.failure import Failure
from magnetar.cli.functions.localrun import localrun
from magnetar.cli.local_run import take_surroundings
from magnetar.cli.main import main
from magnetar.cli.security_settings import SECURITY_SETTINGS
from magnetar.cli.settings import current, find_settings
from magnetar.errors import InvalidConfig
from magnetar.security.credentials.client_security import ClientSecurity

from tests.support.certificates import Authority, server_context

SECRET = "s3cr3t-of-nobody"


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MAGNETAR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def found() -> ClientSecurity:
    return find_settings(None, None, None).security


# -- where they stand -------------------------------------------------------------------------------------------------

PULSARS_FILE = f"""
# Configuration for pulsar-client and pulsar-admin CLI tools
webServiceUrl=https://pulsar:8443/
brokerServiceUrl=pulsar+ssl://pulsar:6651/
authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
authParams=token:{SECRET}
tlsAllowInsecureConnection=false
tlsEnableHostnameVerification=false
tlsTrustCertsFilePath=/ca.pem
tlsKeyFilePath=
tlsCertificateFilePath=
useKeyStoreTls=false
tlsTrustStoreType=JKS
tlsTrustStorePath=
tlsTrustStorePassword=
tlsKeyStoreType=JKS
tlsKeyStorePath=
tlsKeyStorePassword=
webserviceTlsProvider=
"""


def test_the_file_of_pulsars_tools_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("client.conf").write_text(PULSARS_FILE)
    monkeypatch.setenv("MAGNETAR_CLIENT_CONF", "client.conf")
    settings = find_settings(None, None, None)
    assert (settings.admin_url, settings.service_url) == ("https://pulsar:8443", "pulsar+ssl://pulsar:6651")
    assert settings.security == ClientSecurity(
        auth_plugin="org.apache.pulsar.client.impl.auth.AuthenticationToken", auth_params=f"token:{SECRET}",
        tls_trust_certs_file="/ca.pem", tls_hostname_verification=False,
    )  # fmt: skip
    assert settings.credentials.data() == SECRET.encode()


@pytest.mark.parametrize(
    "more",
    ["", "sslFactoryPlugin=org.apache.pulsar.common.util.DefaultPulsarSslFactory\nsslFactoryPluginParams=\n"],
    ids=["2.10 and 3.0", "4.0"],
)
def test_pulsars_stock_client_conf_works_on_an_address_without_tls(monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    stock = PULSARS_FILE.replace("https://pulsar:8443/", "http://localhost:8080/")
    stock = stock.replace("pulsar+ssl://pulsar:6651/", "pulsar://localhost:6650/").replace("/ca.pem", "")
    stock = (
        "".join(f"{line}\n" for line in stock.split("\n") if not line.startswith("auth")) + "authPlugin=\nauthParams=\n"
    )
    Path("client.conf").write_text(stock + more)
    monkeypatch.setenv("MAGNETAR_CLIENT_CONF", "client.conf")
    settings = find_settings(None, None, None)
    assert (settings.admin_url, settings.service_url) == ("http://localhost:8080", "pulsar://localhost:6650")
    assert settings.security == ClientSecurity()
    assert settings.credentials.data() == b""
    assert settings.client_config().tls_hostname_verification is True


def test_switching_verification_off_by_a_flag_still_needs_tls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-tls-enable-hostname-verification", "topics", "list", "a/b"]) == 1
    assert "tls_hostname_verification requires TLS" in capsys.readouterr().err


def test_a_key_of_the_client_file_without_an_effect_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    Path("client.yml").write_text("webserviceTlsProvider: Conscrypt\n")
    find_settings(None, None, None)
    line = "client.yml: webserviceTlsProvider=Conscrypt has no effect: OpenSSL provides TLS"
    assert capsys.readouterr().err == f"magnetar: {line}\n"


def test_every_setting_stands_in_the_file_and_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_SERVICE_URL", "pulsar+ssl://broker:6651")
    values = {one.name: True if one.is_switch else f"of-{one.name}" for one in SECURITY_SETTINGS}
    Path("client.yml").write_text(json.dumps({one.key: values[one.name] for one in SECURITY_SETTINGS}))
    assert found() == ClientSecurity.from_dict(values)
    for one in SECURITY_SETTINGS:
        monkeypatch.setenv(one.variable, "False" if one.is_switch else f"variable-{one.name}")
    varied = {one.name: False if one.is_switch else f"variable-{one.name}" for one in SECURITY_SETTINGS}
    assert found() == ClientSecurity.from_dict(varied)


def test_parameters_are_not_given_to_a_plugin_of_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("client.yml").write_text(f"authPlugin: token\nauthParams: {SECRET}\n")
    assert found().auth_params == SECRET
    monkeypatch.setenv("MAGNETAR_AUTH_PARAMS", "other")
    assert (found().auth_plugin, found().auth_params) == ("token", "other")
    monkeypatch.delenv("MAGNETAR_AUTH_PARAMS")
    monkeypatch.setenv("MAGNETAR_AUTH_PLUGIN", "basic")
    assert found() == ClientSecurity(auth_plugin="basic")


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("authPlugins: x", "unknown key 'authPlugins'; did you mean authPlugin?"),
        ("useKeyStoreTls: true", "useKeyStoreTls is not supported: convert the stores to PEM files"),
        ("proxyServiceUrl: pulsar://x", "proxyServiceUrl is not supported"),
        ("sslFactoryPlugin: com.example.Factory", "sslFactoryPlugin is not supported: Java classes cannot be loaded"),
        ("tlsAllowInsecureConnection: maybe", "client.yml: tlsAllowInsecureConnection must be true or false"),
        (f"authPlugin: token\nauthParams: {{{SECRET}: x}}", "client.yml: authParams is not a string: quote it"),
        (f"authParams: '{SECRET}", "client.yml cannot be read: it is not valid YAML in line"),
        (f"authParams: {SECRET}", "auth_params requires auth_plugin"),
        (f"authPlugin: tokens\nauthParams: {SECRET}", "unknown auth_plugin 'tokens'"),
        ("tlsTrustCertsFilePath: /ca.pem", "tls_trust_certs_file requires TLS, which http://127.0.0.1:8080"),
        ("tlsKeyFilePath: /k", "tls_key_file requires tls_certificate_file"),
    ],
)
def test_a_wrong_file_is_refused_without_its_secret(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("client.yml").write_text(text)
    assert main(["topics", "list", "a/b"]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert SECRET not in error
    assert len(error.splitlines()) == 1


def test_a_wrong_variable_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_TLS_ALLOW_INSECURE_CONNECTION", "1")
    with pytest.raises(Failure, match="MAGNETAR_TLS_ALLOW_INSECURE_CONNECTION must be true or false"):
        find_settings(None, None, None)


def test_a_switch_that_is_a_number_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="invalid tls_hostname_verification: expected bool, got int"):
        ClientSecurity.from_dict({"tls_hostname_verification": 1})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--use-tls"], "--use-tls requires an address with TLS, not pulsar://127.0.0.1:6650"),
        (["--client-auth-plugin", "tokens", "--client-auth-params", SECRET], "unknown auth_plugin 'tokens'"),
        (["--tls-trust-cert-path", "/ca"], "tls_trust_certs_file requires TLS, which http://127.0.0.1:8080"),
        (["--broker-service-url", "http://x"], "expected pulsar:// or pulsar+ssl://"),
    ],
)
def test_a_local_run_refuses_what_contradicts_itself(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["functions", "localrun", "--py", "f.py", "--classname", "f.f", "--inputs", "i", *flags]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert SECRET not in error


def test_a_local_run_takes_credentials_from_either_kind_of_flags() -> None:
    code = Path("f.py")
    code.write_text("def f(x): return x\n")
    for name in ("--client-auth-plugin", "--auth-plugin"):
        context = click.Context(localrun, obj=find_settings(None, "pulsar+ssl://host", None, {"auth_plugin": "token"}))
        flags = [name, "basic", name.replace("plugin", "params"), "u:p", "--hostname-verification-enabled"]
        localrun.parse_args(context, [*flags, "--py", "f.py", "--classname", "f.f", "--inputs", "i"])
        around = take_surroundings(dict(context.params), current(context))
        assert around.security == ClientSecurity(auth_plugin="basic", auth_params="u:p")
        assert around.service_url == "pulsar+ssl://host"


def test_a_server_refuses_credentials_that_it_takes_from_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--auth-plugin", "token", "--auth-params", SECRET, "worker"]) == 1
    error = capsys.readouterr().err
    assert "authentication and TLS flags before `worker` have no effect" in error
    assert SECRET not in error


# -- at work ----------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """A REST interface over TLS, and what it was sent."""

    url: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    wanted: str = ""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def rest(authority: Authority) -> Iterator[Seen]:
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.headers.append(dict(self.headers.items()))
            is_in = not seen.wanted or self.headers.get("Authorization") == seen.wanted
            content = b'["t"]' if is_in else b"<html>Authentication required</html>"
            self.send_response(200 if is_in else 401)
            self.send_header("Content-Type", "application/json" if is_in else "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the library's
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context: ssl.SSLContext = server_context(authority.issue("rest"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    seen.url = f"https://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield seen
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("is_before", [True, False], ids=["before the group", "behind the command"])
def test_flags_reach_the_rest_interface(
    rest: Seen, authority: Authority, is_before: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--admin-url", rest.url, "--auth-params", "ada:word", "--auth-plugin", "basic",
             "--tls-trust-certs-file", str(authority.file)]  # fmt: skip
    command = ["namespaces", "topics", "a/b"]
    assert main([*flags, *command] if is_before else [*command, *flags]) == 0, capsys.readouterr().err
    assert rest.headers[0]["Authorization"] == f"Basic {base64.b64encode(b'ada:word').decode()}"
    assert rest.headers[0]["X-Pulsar-Auth-Method-Name"] == "basic"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "the certificate of 127.0.0.1:"),
        (["--tls-allow-insecure"], "requires authentication (HTTP 401): use --auth-plugin and --auth-params"),
        (["--tls-allow-insecure-connection", "--auth-plugin", "token", "--auth-params", SECRET],
         "rejected the credentials (HTTP 401, method token); they may have expired"),
        (["--tls-allow-insecure-connection", "--auth-plugin", "token", "--auth-params", "file:///nowhere/token"],
         "cannot read token file /nowhere/token: No such file"),
        (["--tls-trust-certs-file", "/nowhere/ca.pem"], "cannot read trusted certificates /nowhere/ca.pem"),
    ],
)  # fmt: skip
def test_who_is_not_let_in_is_told_on_one_line(
    rest: Seen, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rest.wanted = "Bearer right"
    assert main(["--admin-url", rest.url, *flags, "namespaces", "topics", "a/b"]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert SECRET not in error
    assert len(error.splitlines()) == 1
