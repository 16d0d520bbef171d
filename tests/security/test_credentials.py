"""Plugins of clients: their forms, and what is said of wrong ones, which never shows the secret."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import AuthenticationError, ConnectionLost, CredentialsUnavailable, InvalidConfig, MagnetarError
from magnetar.security.client_credentials import ClientCredentials
from magnetar.security.credentials.authentication import METHOD_HEADER, Authentication
from magnetar.security.credentials.authentication_basic import AuthenticationBasic
from magnetar.security.credentials.authentication_oauth2 import AuthenticationOAuth2
from magnetar.security.credentials.authentication_tls import AuthenticationTls
from magnetar.security.credentials.authentication_token import AuthenticationToken
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.security.credentials.plugins import authentication_of

JAVA = "org.apache.pulsar.client.impl.auth"
SECRET = "s3cr3t-of-nobody"


class Own(Authentication):
    """A plugin as a user writes it."""

    method = "own"

    def __init__(self, params: str) -> None:
        if not params:
            raise ValueError(f"no params beside {SECRET}")
        self.params = params

    def data(self) -> bytes:
        return self.params.encode()

    def headers(self) -> dict[str, str]:
        return {"X-Own": self.params}


def found(plugin: str, params: str) -> Authentication:
    authentication = authentication_of(plugin, params)
    assert authentication is not None
    return authentication


# -- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "token:{}", '{{"token": "{}"}}', " {}\n"])
def test_a_token_is_taken_in_each_of_its_forms(form: str) -> None:
    token = found("token", form.format("a.b.c"))
    assert (token.method, token.data()) == ("token", b"a.b.c")
    assert token.headers() == {"Authorization": "Bearer a.b.c", METHOD_HEADER: "token"}


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "file://localhost{}"])
def test_the_file_of_a_token_is_read_at_each_use(form: str, tmp_path: Path) -> None:
    file = tmp_path / "the token"
    file.write_text("one\n")
    token = found("token", form.format(str(file).replace(" ", "%20")))
    assert token.data() == b"one"
    file.write_text("two")
    assert token.data() == b"two"
    assert token.headers()["Authorization"] == "Bearer two"
    file.unlink()
    with pytest.raises(CredentialsUnavailable, match=r"cannot read token file .*the token: No such file"):
        token.data()


def test_a_function_supplies_tokens() -> None:
    tokens = iter(["one", "two"])
    token = AuthenticationToken(lambda: next(tokens))
    assert (token.data(), token.data()) == (b"one", b"two")
    with pytest.raises(CredentialsUnavailable, match="returned int: expected str"):
        AuthenticationToken(lambda: 5).data()  # type: ignore[arg-type, return-value]


def test_a_file_without_end_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    with pytest.raises(CredentialsUnavailable, match="exceeds 65536 bytes"):
        AuthenticationToken(f"file://{tmp_path / 'large'}").data()


# -- basic, tls, own --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", ['{"userId": "ada", "password": "a:b"}', '{"username": "ada", "password": "a:b"}', "ada:a:b"]
)
def test_basic_is_taken_in_each_of_its_forms(params: str) -> None:
    basic = found("basic", params)
    assert (basic.method, basic.data()) == ("basic", b"ada:a:b")
    assert base64.b64decode(basic.headers()["Authorization"].removeprefix("Basic ")) == b"ada:a:b"


def test_basic_has_the_arguments_of_the_official_client() -> None:
    assert AuthenticationBasic("ada", "word").data() == b"ada:word"
    assert AuthenticationBasic("ada", "word", "ldap").method == "ldap"
    assert AuthenticationBasic(auth_params_string="ada:word").data() == b"ada:word"


@pytest.mark.parametrize(
    "params",
    ["tlsCertFile:/c.pem,tlsKeyFile:/k.pem", "tlsKeyFile:///k.pem, tlsCertFile:///c.pem",
     '{"tlsCertFile": "/c.pem", "tlsKeyFile": "/k.pem"}'],
)  # fmt: skip
def test_tls_names_two_files(params: str) -> None:
    tls = found("tls", params)
    assert (tls.method, tls.data(), tls.headers(), tls.certificate()) == ("tls", b"", {}, ("/c.pem", "/k.pem"))


@pytest.mark.parametrize(
    ("name", "kind", "params"),
    [
        ("token", AuthenticationToken, "t"),
        (f"{JAVA}.AuthenticationToken", AuthenticationToken, "t"),
        ("pulsar.AuthenticationToken", AuthenticationToken, "t"),
        ("magnetar.client.AuthenticationToken", AuthenticationToken, "t"),
        (f"{JAVA}.AuthenticationBasic", AuthenticationBasic, "u:p"),
        (f"{JAVA}.AuthenticationTls", AuthenticationTls, "tlsCertFile:c,tlsKeyFile:k"),
        ("pulsar.AuthenticationTLS", AuthenticationTls, "tlsCertFile:c,tlsKeyFile:k"),
        (f"{JAVA}.oauth2.AuthenticationOAuth2", AuthenticationOAuth2,
         '{"issuerUrl": "https://i", "privateKey": "/k"}'),
        ("pulsar.AuthenticationOauth2", AuthenticationOAuth2, '{"issuer_url": "https://i", "private_key": "/k"}'),
    ],
)  # fmt: skip
def test_names_of_pulsar_are_known(name: str, kind: type, params: str) -> None:
    assert type(found(name, params)) is kind


@pytest.mark.parametrize("name", ["", "none", f"{JAVA}.AuthenticationDisabled"])
def test_no_plugin_is_none(name: str) -> None:
    assert authentication_of(name, "") is None


@pytest.mark.parametrize("mark", [".", ":"])
def test_a_plugin_of_ones_own_is_given_the_parameters(mark: str) -> None:
    own = found(f"{__name__}{mark}Own", "words")
    assert (own.method, own.data(), own.headers()) == ("own", b"words", {"X-Own": "words"})


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plugin", "params", "said"),
    [
        ("token", "", "the token is empty: expected token:…, file:///… or a bare token"),
        ("token", f"{SECRET} {SECRET}", "must not contain white space"),
        ("token", f'{{"token": "{SECRET}"', 'expected a JSON object with a string "token"'),
        ("token", f'{{"tokens": "{SECRET}"}}', 'expected a JSON object with a string "token"'),
        ("token", f"file://{SECRET}/etc/t", "token file is not a local file: use file:///path"),
        ("basic", SECRET, "no colon: expected"),
        ("basic", f":{SECRET}", "requires a username and a password"),
        ("basic", f'{{"userId": "u", "pass": "{SECRET}"}}', "missing userId or password"),
        ("basic", f'{{"userId": "u", "password": "{SECRET}"', "not valid JSON"),
        ("basic", f'{{"userId": "a:b", "password": "{SECRET}"}}', "must not contain a colon"),
        ("tls", SECRET, "tlsCertFile and tlsKeyFile required: expected tlsCertFile:/path/cert.pem"),
        ("tls", "tlsCertFile:,tlsKeyFile:k", "requires certificate and key files"),
        ("tls", f'{{"{SECRET}', "not valid JSON"),
        ("oauth2", SECRET, "expected a JSON object"),
        ("oauth2", f'{{"issuerUrl": "https://i", "clientId": "c", "clientSecret": "{SECRET}", "type": "code"}}',
         "unsupported OAuth2 type 'code'"),
        ("oauth2", f'{{"clientId": "c", "clientSecret": "{SECRET}"}}', "missing OAuth2 parameter issuerUrl"),
        ("oauth2", f'{{"issuerUrl": "https://i", "clientSecret": "{SECRET}"}}', "either privateKey, or clientId and"),
        ("oauth2", f'{{"issuerUrl": "http://idp.example", "clientId": "c", "clientSecret": "{SECRET}"}}',
         "must begin with https://"),
        ("oauth2", f'{{"issuerUrl": "https://u:{SECRET}@i", "privateKey": "/k"}}', "contains a user name"),
        ("oauth2", '{"issuerUrl": "https://i", "privateKey": "/k", "audiance": "x"}',
         "unknown OAuth2 parameter 'audiance'"),
        ("athenz", SECRET, "unknown auth_plugin 'athenz': expected token, basic, tls, oauth2"),
        (f"{JAVA}.AuthenticationSasl", SECRET, "unknown auth_plugin"),
        ("no_such.Module", SECRET, "cannot import auth_plugin"),
        (f"{__name__}:Missing", SECRET, "cannot import auth_plugin"),
        ("json:dumps", SECRET, "is not a subclass of magnetar.client.Authentication"),
        (f"{__name__}:Own", "", "rejected auth_params: ValueError"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused_on_one_line_without_the_secret(plugin: str, params: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        authentication_of(plugin, params)
    text = str(refused.value)
    assert said in text
    assert SECRET not in text
    assert "\n" not in text


@given(st.sampled_from(["token", "basic", "tls", "oauth2"]), st.text(alphabet=st.characters(codec="utf-8")))
def test_no_parameters_do_anything_but_work_or_be_refused(plugin: str, params: str) -> None:
    said = said_of(plugin, params)
    assert "\n" not in said
    assert len(params) < 12 or params not in said


def said_of(plugin: str, params: str) -> str:
    """What is shown of parameters: the error, else the plugin; what names files or a server is no secret."""
    try:
        authentication = authentication_of(plugin, params)
    except InvalidConfig as refused:
        return str(refused)
    return "" if plugin in ("tls", "oauth2") else repr(authentication)


def test_secrets_are_in_no_repr() -> None:
    security = ClientSecurity(auth_plugin="token", auth_params=f"token:{SECRET}")
    own = found(f"{__name__}:Own", SECRET)
    for shown in (security, ClientCredentials(security).authentication, own, AuthenticationBasic("u", SECRET)):
        assert SECRET not in repr(shown)


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_go_through_json() -> None:
    security = ClientSecurity(
        auth_plugin="basic", auth_params="u:p", tls_trust_certs_file="/ca", tls_hostname_verification=False
    )
    assert ClientSecurity.from_dict(json.loads(json.dumps(security.to_dict()))) == security
    assert ClientSecurity().to_dict() == {}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"auth_params": SECRET}, "auth_params requires auth_plugin"),
        ({"tls_key_file": "/k"}, "tls_key_file requires tls_certificate_file"),
        ({"tls_certificate_file": "/c"}, "tls_certificate_file requires tls_key_file"),
        ({"tls_hostname_verification": "yes"}, "invalid tls_hostname_verification: expected bool, got str"),
        ({"auth_plugin": None}, "invalid auth_plugin: expected str, got NoneType"),
        ({"tls_trust_certs_file": "a\0b"}, "tls_trust_certs_file: must not contain a NUL character"),
        ({"tls_trust": "x"}, "unknown client security setting 'tls_trust'"),
    ],
)
def test_wrong_settings_are_refused_by_name(values: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        ClientSecurity.from_dict(values)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("security", "named"),
    [
        (ClientSecurity(tls_trust_certs_file="/ca"), "tls_trust_certs_file requires TLS"),
        (ClientSecurity(auth_plugin="tls", auth_params="tlsCertFile:c,tlsKeyFile:k"), "authentication method tls"),
    ],
)
def test_settings_of_tls_without_tls_are_refused(security: ClientSecurity, named: str) -> None:
    credentials = ClientCredentials(security)
    credentials.check_url("pulsar://a", "https://a")
    with pytest.raises(InvalidConfig, match=named):
        credentials.check_url("pulsar://a", None, "http://a")


def test_credentials_are_given_once() -> None:
    with pytest.raises(InvalidConfig, match="authentication and auth_plugin are mutually exclusive"):
        ClientCredentials(ClientSecurity(auth_plugin="token", auth_params="t"), AuthenticationToken("t"))
    with pytest.raises(InvalidConfig, match="invalid authentication of type str"):
        ClientCredentials(None, "token")  # type: ignore[arg-type]


def test_a_failing_plugin_is_named_without_what_it_says() -> None:
    def fail() -> str:
        raise RuntimeError(f"cannot use {SECRET}")

    credentials = ClientCredentials(None, AuthenticationToken(fail))
    for ask in (credentials.data, credentials.headers):
        with pytest.raises(CredentialsUnavailable) as failed:
            ask()
        assert str(failed.value) == "AuthenticationToken raised RuntimeError instead of returning credentials"


# -- OAuth2 -----------------------------------------------------------------------------------------------------------


class Issuer:
    """An authorization server by function calls."""

    def __init__(self) -> None:
        self.now = 100.0
        self.forms: list[dict[str, list[str]]] = []
        self.answer: tuple[int, object] = (200, None)
        self.expires_in: object = 60

    def __call__(self, url: str, form: bytes | None) -> tuple[int, bytes]:
        if form is None:
            assert url == "https://issuer.example/tenant/.well-known/openid-configuration"
            return 200, b'{"token_endpoint": "https://issuer.example/oauth/token"}'
        assert url == "https://issuer.example/oauth/token"
        self.forms.append(parse_qs(form.decode()))
        status, content = self.answer
        token = {"access_token": f"token-{len(self.forms)}", "expires_in": self.expires_in}
        return status, json.dumps(token if content is None else content).encode()


KEY = {"client_id": "me", "client_secret": SECRET, "type": "client_credentials"}


def oauth2(issuer: Issuer, **params: str) -> AuthenticationOAuth2:
    given = {"issuerUrl": "https://issuer.example/tenant/", **params}
    return AuthenticationOAuth2(json.dumps(given), fetch=issuer, clock=lambda: issuer.now)


def test_oauth2_keeps_a_token_until_shortly_before_it_expires() -> None:
    issuer = Issuer()
    key = base64.b64encode(json.dumps(KEY).encode()).decode()
    plugin = oauth2(issuer, privateKey=f"data:application/json;base64,{key}", audience="urn:x", scope="s")
    assert (plugin.method, plugin.data()) == ("token", b"token-1")
    issuer.now += 53
    assert plugin.headers()["Authorization"] == "Bearer token-1"
    issuer.now += 1.5
    assert plugin.data() == b"token-2"
    assert issuer.forms[0] == {
        "grant_type": ["client_credentials"], "client_id": ["me"], "client_secret": [SECRET], "audience": ["urn:x"],
        "scope": ["s"],
    }  # fmt: skip


@pytest.mark.parametrize("expires_in", [0, None, "x"])
def test_oauth2_keeps_no_token_that_says_not_how_long_it_is_good(expires_in: object) -> None:
    issuer = Issuer()
    issuer.expires_in = expires_in
    plugin = oauth2(issuer, clientId="me", clientSecret=SECRET)
    assert (plugin.data(), plugin.data()) == (b"token-1", b"token-2")


def test_oauth2_reads_the_secret_anew_for_each_token(tmp_path: Path) -> None:
    issuer = Issuer()
    file = tmp_path / "key.json"
    file.write_text(json.dumps(KEY))
    plugin = oauth2(issuer, privateKey=f"file://{file}")
    plugin.data()
    issuer.now += 60
    file.write_text(json.dumps(KEY | {"client_secret": "new"}))
    plugin.data()
    assert [form["client_secret"] for form in issuer.forms] == [[SECRET], ["new"]]
    issuer.now += 60
    file.write_text(f'"{SECRET}"')
    with pytest.raises(CredentialsUnavailable, match="OAuth2 privateKey does not contain a JSON object"):
        plugin.data()


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((401, {"error": "invalid_client", "error_description": "wrong\nsecret"}), AuthenticationError,
         "https://issuer.example/tenant rejected the client: invalid_client wrong secret"),
        ((400, "x"), AuthenticationError, "https://issuer.example/tenant rejected the client: 400"),
        ((503, {}), ConnectionLost, "https://issuer.example/oauth/token returned status 503 instead of 200"),
        ((200, []), CredentialsUnavailable, "response of https://issuer.example/oauth/token is not a JSON object"),
        ((200, {"token": "x"}), CredentialsUnavailable,
         "response of https://issuer.example/tenant does not contain an access_token"),
    ],
)  # fmt: skip
def test_oauth2_says_what_the_issuer_answered(answer: tuple[int, object], kind: type[MagnetarError], said: str) -> None:
    issuer = Issuer()
    issuer.answer = answer
    with pytest.raises(kind) as failed:
        oauth2(issuer, clientId="me", clientSecret=SECRET).data()
    assert said == str(failed.value).strip()
    assert SECRET not in str(failed.value)
