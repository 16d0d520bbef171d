"""Tokens: which are taken, by which key, and until when."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import AuthenticationError, InvalidConfig
from magnetar.security.authentication.keys import key_bytes
from magnetar.security.authentication.provider import Identity, Peer
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.authentication.tokens import MAX_TOKEN_BYTES, TokenProvider, judge

from ..support.tokens import SECRET, data_url, ec_key, public_der, rsa_key, token, unsigned

NOW = 1_800_000_000.0
PEER = Peer("/127.0.0.1:1")


def provider(**settings: Any) -> TokenProvider:
    if not settings.keys() & {"token_secret_key", "token_public_key"}:
        settings["token_secret_key"] = data_url(SECRET)
    return TokenProvider(ServerSecurity(enabled=True, providers=("token",), **settings))


def identity(shown: str | bytes, now_s: float = NOW, **settings: Any) -> Identity:
    data = shown.encode() if isinstance(shown, str) else shown
    return provider(**settings).authenticate(data, PEER, now_s)


def test_a_token_names_its_subject() -> None:
    assert identity(token("ann")) == Identity("ann", None)


def test_a_token_without_the_claim_is_valid_and_names_nobody() -> None:
    assert identity(token(None)) == Identity(None, None)
    assert identity(token(" ")) == Identity(None, None)


def test_the_role_is_the_first_text_of_a_list() -> None:
    assert identity(token(None, roles=["ann", "bob"]), token_auth_claim="roles").role == "ann"
    assert identity(token(None, roles=[]), token_auth_claim="roles").role is None
    assert identity(token(None, roles=[7]), token_auth_claim="roles").role is None


def test_a_claim_that_is_neither_text_nor_list_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="token claim admin is not a string"):
        identity(token("ann", admin={"a": 1}), token_auth_claim="admin")


@pytest.mark.parametrize(("skew", "late"), [(0, 0), (30, 30)])
def test_a_token_is_good_until_its_end_and_the_skew(skew: int, late: int) -> None:
    shown = token("ann", exp=int(NOW))
    assert identity(shown, NOW + late, token_clock_skew_s=skew) == Identity("ann", NOW + skew)
    with pytest.raises(AuthenticationError, match=f"the token expired {late + 1} s ago"):
        identity(shown, NOW + late + 1, token_clock_skew_s=skew)


def test_a_token_is_good_from_its_beginning_less_the_skew() -> None:
    shown = token("ann", nbf=int(NOW) + 10)
    with pytest.raises(AuthenticationError, match="the token is not valid for another 10 s"):
        identity(shown)
    assert identity(shown, token_clock_skew_s=10).role == "ann"


def test_issue_time_and_issuer_do_not_count() -> None:
    assert identity(token("ann", iat=int(NOW) + 9999, iss="anybody", jti="7")).role == "ann"


@pytest.mark.parametrize(
    ("claims", "is_good"),
    [
        ({"aud": "here"}, True), ({"aud": ["there", "here"]}, True), ({"aud": "there"}, False),
        ({"aud": ["there"]}, False), ({}, False), ({"aud": 7}, False), ({"aud": {"here": 1}}, False),
    ],
)  # fmt: skip
def test_the_audience_has_to_be_this_server(claims: dict[str, Any], is_good: bool) -> None:
    settings: dict[str, Any] = {"token_audience_claim": "aud", "token_audience": "here"}
    if is_good:
        assert identity(token("ann", **claims), **settings).role == "ann"
    else:
        with pytest.raises(AuthenticationError, match="different audience"):
            identity(token("ann", **claims), **settings)


def test_no_algorithm_is_none() -> None:
    for name in ("none", "None", "NONE", "nOnE", "", None, 5, ["HS256"]):
        with pytest.raises(AuthenticationError):
            identity(unsigned({"sub": "ann"}, {"alg": name, "typ": "JWT"}))


def test_a_public_key_is_no_secret() -> None:
    key = rsa_key()
    public = public_der(key)
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    setting: dict[str, Any] = {"token_public_key": data_url(public)}
    assert identity(jwt.encode({"sub": "ann"}, key, "RS256"), **setting).role == "ann"
    for secret in (public, pem):  # signed with what everybody may know
        parts = unsigned({"sub": "ann"}, {"alg": "HS256", "typ": "JWT"}).rpartition(".")[0]
        shown = unsigned(
            {"sub": "ann"}, {"alg": "HS256", "typ": "JWT"}, hmac.digest(secret, parts.encode(), hashlib.sha256)
        )
        with pytest.raises(AuthenticationError, match="InvalidAlgorithmError"):
            identity(shown, **setting)
        with pytest.raises(InvalidConfig, match="tokenSecretKey is a public key, not a secret key"):
            provider(token_secret_key=data_url(secret))


@pytest.mark.parametrize("length", [32, 47, 48, 63, 64, 100])
def test_the_length_of_a_secret_says_which_algorithms_it_takes(length: int) -> None:
    secret = b"k" * length
    for algorithm, least in (("HS256", 32), ("HS384", 48), ("HS512", 64)):
        shown = unsigned_with(secret, algorithm)
        if length >= least:
            assert identity(shown, token_secret_key=data_url(secret)).role == "ann"
        else:
            with pytest.raises(AuthenticationError):
                identity(shown, token_secret_key=data_url(secret))


def unsigned_with(secret: bytes, algorithm: str) -> str:
    """A token signed with a key that may be shorter than libraries allow."""
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[algorithm]
    parts = unsigned({"sub": "ann"}, {"alg": algorithm, "typ": "JWT"}).rpartition(".")[0]
    return unsigned({"sub": "ann"}, {"alg": algorithm, "typ": "JWT"}, hmac.digest(secret, parts.encode(), digest))


@pytest.mark.parametrize(
    ("curve", "algorithm"), [(ec.SECP256R1(), "ES256"), (ec.SECP384R1(), "ES384"), (ec.SECP521R1(), "ES512")]
)
def test_a_key_of_ecdsa_takes_the_algorithm_of_its_curve(curve: ec.EllipticCurve, algorithm: str) -> None:
    key = ec_key(curve)
    settings: dict[str, Any] = {"token_public_key": data_url(public_der(key)), "token_public_alg": "ES256"}
    assert identity(jwt.encode({"sub": "ann"}, key, algorithm), **settings).role == "ann"


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_key_of_rsa_takes_all_of_rsa(algorithm: str) -> None:
    key = rsa_key()
    shown = jwt.encode({"sub": "ann"}, key, algorithm)
    assert identity(shown, token_public_key=data_url(public_der(key))).role == "ann"
    with pytest.raises(AuthenticationError, match="InvalidSignatureError"):
        identity(shown, token_public_key=data_url(public_der(rsa_key())))


@pytest.mark.parametrize("extension", [{"crit": ["exp"]}, {"zip": "DEF"}, {"b64": False}])
def test_a_token_with_an_extension_is_refused(extension: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationError):
        identity(jwt.encode({"sub": "ann"}, SECRET, "HS256", headers=extension))


def test_a_token_is_bounded() -> None:
    with pytest.raises(AuthenticationError, match=f"exceeds the limit of {MAX_TOKEN_BYTES}"):
        identity(b"x" * (MAX_TOKEN_BYTES + 1))


@pytest.mark.parametrize(
    "claims", [{"exp": "soon"}, {"exp": True}, {"nbf": []}, {"exp": float("inf")}, {"exp": 10**400}]
)
def test_a_moment_that_is_none_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationError, match=r"token claim .* is not"):
        judge({"sub": "ann", **claims}, ServerSecurity(), NOW)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"token_secret_key": ""}, "no key is set: set tokenSecretKey or tokenPublicKey"),
        ({"token_secret_key": data_url(b"short")}, "tokenSecretKey has 5 bytes, but HS256 requires 32"),
        ({"token_secret_key": "no/such path!"}, "invalid tokenSecretKey: expected data:"),
        ({"token_secret_key": "file:///no/such/file"}, "cannot read /no/such/file: No such file"),
        ({"token_secret_key": "data:nothing"}, "without a comma"),
        ({"token_secret_key": "data:;base64,!!"}, "invalid base64"),
        ({"token_public_key": data_url(b"x" * 64)}, "tokenPublicKey is not a public key in DER"),
        ({"token_public_key": data_url(public_der(ec_key(ec.SECP256R1())))}, "is not a key for RS256"),
        ({"token_public_key": "AAAA", "token_public_alg": "HS256"}, "invalid tokenPublicAlg 'HS256'"),
        ({"token_audience_claim": "aud"}, "tokenAudienceClaim requires tokenAudience"),
        ({"token_audience": "here"}, "tokenAudience has no effect without tokenAudienceClaim"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        provider(**settings)
    assert reason in str(caught.value)


def test_a_key_may_be_given_in_four_forms(tmp_path: Path) -> None:
    file = tmp_path / "my key"
    file.write_bytes(SECRET)
    for form in (data_url(SECRET), file.as_uri(), str(file), data_url(SECRET).partition(",")[2]):
        assert key_bytes("tokenSecretKey", form) == SECRET


def test_the_settings_show_no_secret() -> None:
    settings = ServerSecurity(
        token_secret_key=data_url(SECRET), basic_auth_conf="data:,a:b", properties={"key": "hidden"}
    )
    for secret in ("base64", "a:b", "hidden"):
        assert secret not in repr(settings)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise_anything_but_its_refusal(data: bytes) -> None:
    with pytest.raises(AuthenticationError):
        TOKENS.authenticate(data, PEER, NOW)


@given(
    st.dictionaries(st.sampled_from(["alg", "typ", "kid", "crit", "zip", "b64", "jwk"]), JSON),
    JSON,
    st.binary(max_size=40),
)
def test_no_token_with_a_forged_signature_is_taken(header: dict[str, Any], claims: Any, signature: bytes) -> None:
    with pytest.raises(AuthenticationError):
        TOKENS.authenticate(unsigned(claims, header, signature).encode(), PEER, NOW)


@given(
    st.fixed_dictionaries(
        {}, optional={"sub": JSON, "exp": JSON, "nbf": JSON, "aud": JSON, "iat": JSON, "iss": JSON, "jti": JSON}
    )
)
def test_no_signed_claims_make_it_raise_anything_but_its_refusal(claims: dict[str, Any]) -> None:
    parts = unsigned(claims, {"alg": "HS256"}).rpartition(".")[0]
    shown = unsigned(claims, {"alg": "HS256"}, hmac.digest(SECRET, parts.encode(), hashlib.sha256))
    try:
        found = TOKENS.authenticate(shown.encode(), PEER, NOW)
    except AuthenticationError:
        return
    assert found.role is None or isinstance(found.role, str)
    assert json.loads(json.dumps(found.expires_at)) == found.expires_at


TOKENS = provider()
