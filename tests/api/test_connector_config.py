"""Configurations of connectors: secrets are read from their place, hidden, and kept when they come back hidden."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

import pytest
from magnetar.api.connector_config import HIDDEN, option, read_config
from magnetar.api.connector_secrets import Hiding, hidden, secret_values, with_kept
from magnetar.errors import InvalidConfig


@dataclass
class Config:
    url: str = option("Where it is.")
    password: str = option("Of the user.", default="", secret=True, aliases=("pw",))
    retries: int = option("How often.", default=3, limits=(0, 10))
    headers: dict[str, str] = option("Of requests.", default={})  # noqa: RUF009  it makes a field()


def refusal(given: dict[str, object], secrets: dict[str, str] | None = None) -> str:
    with pytest.raises(InvalidConfig) as caught:
        read_config(Config, given, secrets)
    return str(caught.value)


@pytest.mark.parametrize("key", ["password", "pw"])
def test_a_secret_goes_before_the_value_in_configs(key: str) -> None:
    config = read_config(Config, {"url": "u", "password": "old"}, {key: "new"})
    assert config.password == "new"


def test_secrets_in_the_wrong_place_are_named() -> None:
    assert refusal({"url": "u"}, {"passwort": "x"}) == "secrets: unknown field passwort: did you mean password?"
    assert refusal({"url": "u", "secrets": {"password": "x"}}) == (
        "secrets is not a field of configs: set it next to configs (flag --secrets)"
    )
    assert refusal({"url": "u"}, {"token": "x"}) == ("secrets: unknown field token: expected one of password")
    assert refusal({"url": "u"}, {"retries": "3"}) == "secrets: retries is not a secret field: set it in configs"


def test_every_fault_is_named_and_no_secret_shown() -> None:
    reason = refusal({"password": 5, "retries": 11, "ulr": "u"})
    assert reason == (
        "unknown field ulr: did you mean url?; url is missing: Where it is.;"
        " password must be a string, not ***; retries must be at most 10, not 11"
    )


def test_secrets_are_hidden_by_field_and_elsewhere_by_name() -> None:
    given = {"url": "u", "pw": "x", "password": "", "headers": {"Authorization": "x", "a": [{"apiKey": "x", "b": 1}]}}
    assert hidden(Config, given) == {
        "url": "u", "pw": HIDDEN, "password": "",
        "headers": {"Authorization": HIDDEN, "a": [{"apiKey": HIDDEN, "b": 1}]},
    }  # fmt: skip
    assert hidden(None, {"dbPassword": "x", "sasl.jaas.config": "x", "name": "n"}) == {
        "dbPassword": HIDDEN, "sasl.jaas.config": HIDDEN, "name": "n",
    }  # fmt: skip


def test_what_comes_back_hidden_is_kept() -> None:
    before = {"pw": "x", "headers": {"Authorization": "y", "a": [{"apiKey": "z"}]}, "gone": 1}
    sent = {"pw": HIDDEN, "headers": {"Authorization": HIDDEN, "a": [{"apiKey": HIDDEN}], "new": "1"}}
    assert with_kept(sent, before, "configs") == {
        "pw": "x", "headers": {"Authorization": "y", "a": [{"apiKey": "z"}], "new": "1"},
    }  # fmt: skip
    for wrong, path in (({"other": HIDDEN}, "configs.other"), ({"headers": {"b": HIDDEN}}, "configs.headers.b")):
        with pytest.raises(InvalidConfig) as caught:
            with_kept(wrong, before, "configs")
        assert str(caught.value) == f"{path} is ***, which keeps the current value, but no value is set: set a value"


def test_passwords_in_urls_are_hidden_and_kept_too() -> None:
    before = {"url": "postgresql://me:pa$$word@db:5432/shop", "all": ["amqp://a:bcde@f/", "a:b@c"]}
    shown = hidden(Config, before)
    assert shown == {"url": "postgresql://me:***@db:5432/shop", "all": ["amqp://a:***@f/", "a:b@c"]}
    assert with_kept(shown, before, "configs") == before
    with pytest.raises(InvalidConfig) as caught:
        with_kept({"url": "postgresql://me:***@other/shop"}, before, "configs")
    assert (
        str(caught.value) == "configs.url has *** in place of a password, but the URL was changed: enter the password"
    )


def test_secrets_are_taken_out_of_texts() -> None:
    given = {
        "url": "a://b:hushurl@c", "password": "hushfield", "secretOf": {"deep": ["hushdeep"]},
        "headers": {"Cookie": "hushcookie", "a": "b", "tokenUser": "someone"},
    }  # fmt: skip
    hide = Hiding()
    hide.hide(secret_values(Config, given, {"x": "hushsecret", "short": "abc", "userName": "postgres"}))
    text = "hushurl, hushfield, hushcookie, hushdeep, hushsecret, abc, someone, postgres"
    assert hide(text) == "***, ***, ***, ***, ***, abc, someone, postgres"


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"


def test_a_secret_is_found_in_every_form_in_which_it_is_shown() -> None:
    hide = Hiding()
    secret = 'pass\tw"ord/é'
    hide.hide([secret, PEM])
    for shown in (secret, repr({"p": secret}), json.dumps(secret), json.dumps([secret], ensure_ascii=False)):
        assert "ord" not in hide(f"before {shown} after")
        assert hide(f"before {shown} after").startswith("before ")
    for url in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        assert hide(f"https://h/?q={url}&a=b") == "https://h/?q=***&a=b"
    assert hide(PEM) == "***"
    assert [hide(line) for line in PEM.splitlines()] == ["***"] * 4
    assert "MII" not in hide(f"ValueError: {PEM}") + hide(repr(PEM)) + hide(f"  {PEM.splitlines()[1]}\nmore")


def test_a_text_beside_a_secret_stays() -> None:
    hide = Hiding()
    hide.hide(["user\nabc\nlong enough"])
    assert hide("a user, abc\n\nlong enough\nlong enough and more\n") == ("a user, abc\n\n***\nlong enough and more\n")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "jdbc:postgresql://h/db?user=ann&password=hush&ssl=true",
            "jdbc:postgresql://h/db?user=ann&password=***&ssl=true",
        ),
        ("jdbc:sqlserver://h;databaseName=d;Pwd=hush;x=1", "jdbc:sqlserver://h;databaseName=d;Pwd=***;x=1"),
        ("https://h/x?api_key=hush", "https://h/x?api_key=***"),
        ("https://h/x?X-Amz-Signature=hush#a", "https://h/x?X-Amz-Signature=***#a"),
        ("https://h/x?page=2&sort=asc", "https://h/x?page=2&sort=asc"),
    ],
)
def test_secrets_in_parameters_of_urls_are_hidden(url: str, shown: str) -> None:
    assert hidden(None, {"url": url, "urls": [url]}) == {"url": shown, "urls": [shown]}
    hide = Hiding()
    hide.hide(secret_values(None, {"url": url}, {}))
    assert ("hush" in hide("refused: hush")) == (url == shown)
    assert with_kept({"url": shown}, {"url": url}, "configs") == {"url": url}


def test_a_secret_that_is_an_object_is_given_as_json() -> None:
    @dataclass
    class Catalog:
        properties: dict[str, str] = option("Settings.", secret=True)  # noqa: RUF009

    given = '{"type": "sql", "password": "hushdeep"}'
    assert read_config(Catalog, {}, {"properties": given}).properties == {"type": "sql", "password": "hushdeep"}
    for wrong in ("[]", "{", "text", "[" * 100_000):
        with pytest.raises(InvalidConfig) as caught:
            read_config(Catalog, {}, {"properties": wrong})
        assert str(caught.value) == "properties must be a JSON object, not ***"
    hide = Hiding()
    hide.hide(secret_values(Catalog, {}, {"properties": given}))
    assert hide("hushdeep") == "***"


def test_a_class_that_is_no_configuration_is_named() -> None:
    class Plain:
        url: str

    @dataclass
    class Unsaid:
        url: str = "u"

    @dataclass
    class Odd:
        url: set[str] = option("Where it is.")  # noqa: RUF009

    @dataclass
    class Unread:
        url: Nowhere = option("Where it is.")  # type: ignore[name-defined]  # noqa: F821, RUF009

    for config, reason in (
        (Unread, "config class Unread has an invalid type annotation: name 'Nowhere' is not defined"),
        (Plain, "config class Plain is not a dataclass"),
        (Unsaid, "Unsaid.url must be declared with option(…)"),
        (Odd, "Odd.url has an unsupported type: expected str, int, float, bool, Literal, list[str] or dict"),
    ):
        with pytest.raises(InvalidConfig) as caught:
            read_config(config, {})
        assert str(caught.value) == reason
