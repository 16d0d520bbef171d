"""CONNECT and AUTH_RESPONSE on the wire, as a real Pulsar answered them (`tests/golden/auth`), and attacks on both."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from magnetar.broker.service import BrokerService
from magnetar.errors import AuthenticationError
from magnetar.security.authentication.provider import AuthenticationProvider, Identity, Peer
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.roles import Roles
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from ..support.eventually import until
from ..support.tokens import PROVIDER_BASIC, PROVIDER_TOKEN, token, unsigned
from .brokers import running_broker
from .raw import Raw
from .secured import (
    FAILED,
    GOOD,
    HTPASSWD,
    PROXY,
    answers_of,
    closing_all,
    connect,
    outcome,
    recorded,
    secured,
    settings,
    with_token,
)


def same_key_longer_hash() -> str:
    return unsigned({"sub": "superuser"}, {"alg": "HS512"}, b"0" * 64)


# What is sent by name of the recorded case.
CONNECTS: dict[str, dict[str, Any]] = {
    "no auth method": {},
    "auth_method_name none": {"auth_method_name": "none"},
    "valid": GOOD,
    "bad signature": with_token(token("superuser", key=b"x" * 32)),
    "expired": with_token(token("superuser", exp=1)),
    "garbage": with_token("garbage"),
    "empty auth_data": with_token(""),
    "no auth_data": {"auth_method_name": "token"},
    "alg none": with_token(unsigned({"sub": "superuser"}, {"alg": "none"})),
    "HS512, same key": with_token(same_key_longer_hash()),
    "no sub claim": with_token(token(None)),
    "nbf in the future": with_token(token("superuser", nbf=int(time.time()) + 3600)),
    "Bearer prefix in auth_data": with_token("Bearer " + token("superuser")),
    "method basic, not configured": {"auth_method_name": "basic", "auth_data": b"superuser:x"},
    "legacy enum auth_method 0": {"auth_method": 0, "auth_data": token("superuser").encode()},
    "original_principal, role is no proxy": {**GOOD, "original_principal": "consumer"},
    "original_principal equal to own role, no proxy": {**GOOD, "original_principal": "superuser"},
    "proxy role without original_principal": PROXY,
    "proxy role with original_principal": {**PROXY, "original_principal": "consumer"},
    "proxy role, original is a proxy role": {**PROXY, "original_principal": "proxy"},
    "proxy role, original data given but not verified": {
        **PROXY, "original_principal": "consumer", "original_auth_data": "bad", "original_auth_method": "token",
    },
    "proxy_version by a role that is no proxy": {**GOOD, "proxy_version": "1"},
    "stranger": with_token(token("stranger")),
    "proxy_to_broker_url on a broker": {**GOOD, "proxy_to_broker_url": "127.0.0.1:6650"},
}  # fmt: skip


@pytest.fixture(autouse=True)
async def closed_at_the_end() -> AsyncIterator[None]:
    with closing_all():
        yield


async def test_connects_are_answered_as_pulsar_does(tmp_path: Path) -> None:
    rows = answers_of("connect")
    assert rows.keys() == CONNECTS.keys()
    async with secured(tmp_path) as broker:
        for case, row in rows.items():
            raw = await Raw.open(broker.port)
            assert await connect(raw, **CONNECTS[case]) == recorded(row), case
            await raw.close()


async def test_the_anonymous_role_connects_as_in_pulsar(tmp_path: Path) -> None:
    shows = {
        "no method": {}, "unknown method": {"auth_method_name": "nonsense"}, "garbage token": with_token("garbage"),
        "expired token": with_token(token("superuser", exp=1)), "no sub claim": with_token(token(None)),
    }  # fmt: skip
    rows = answers_of("anonymous")
    assert rows.keys() == shows.keys()
    async with secured(tmp_path, anonymous_role="anon") as broker:
        for case, row in rows.items():
            raw = await Raw.open(broker.port)
            assert await connect(raw, **shows[case]) == recorded({"answer": row["answer"]}), case
            if "method" in case:
                assert [one.roles for one in broker.connections][-1] == Roles("anon")
            await raw.close()


async def test_credentials_that_a_proxy_passes_on_are_judged_as_in_pulsar(tmp_path: Path) -> None:
    original = {**PROXY, "original_principal": "consumer"}
    shows = {
        "original data of consumer, method token": {
            **original, "original_auth_data": token("consumer"), "original_auth_method": "token"
        },
        "garbage original data": {**original, "original_auth_data": "garbage", "original_auth_method": "token"},
        "no original data": PROXY,
        "original data without original_auth_method": {**original, "original_auth_data": token("consumer")},
    }  # fmt: skip
    rows = answers_of("original auth data")
    assert rows.keys() == shows.keys()
    async with secured(tmp_path, anonymous_role="anon", authenticate_original=True) as broker:
        for case, row in rows.items():
            raw = await Raw.open(broker.port)
            assert await connect(raw, **shows[case]) == recorded(row), case
            if "of consumer" in case:
                assert [one.roles for one in broker.connections][-1] == Roles("proxy", "consumer")
            await raw.close()


async def test_passwords_are_judged_as_in_pulsar(tmp_path: Path) -> None:
    shows = {
        "apr1 user, right password": b"producer:myPassword", "crypt user, right password": b"consumer:myPassword",
        "wrong password": b"producer:wrong", "{SHA} user": b"sha:secret", "two colons": b"producer:my:Password",
    }  # fmt: skip
    rows = answers_of("basic")
    assert rows.keys() == shows.keys()
    async with secured(tmp_path, providers=(PROVIDER_TOKEN, PROVIDER_BASIC), basic_auth_conf=HTPASSWD) as broker:
        for case, row in rows.items():
            raw = await Raw.open(broker.port)
            assert (await connect(raw, auth_method_name="basic", auth_data=shows[case]))[:1] == recorded(row)[:1], case
            await raw.close()


# Credentials that end


async def refreshed(broker: BrokerService, **features: bool) -> Raw:
    raw = await Raw.open(broker.port)
    shows = with_token(token("ann", exp=time.time() + 0.3), feature_flags={"supports_auth_refresh": True} | features)
    assert await connect(raw, **shows) == ("CONNECTED",)
    return raw


async def challenged(broker: BrokerService) -> Raw:
    raw = await refreshed(broker)
    challenge = (await raw.receive()).command.authChallenge
    assert (challenge.challenge.auth_method_name, challenge.challenge.auth_data) == ("token", b"PulsarAuthRefresh")
    assert challenge.protocol_version == 21
    return raw


def respond(raw: Raw, shown: str) -> None:
    response = {"auth_method_name": "token", "auth_data": shown.encode()}
    raw.send("AUTH_RESPONSE", client_version="raw", protocol_version=21, response=response)


async def looks_up(raw: Raw) -> bool:
    answer = await raw.request("LOOKUP", topic="persistent://public/wire/t", request_id=1, authoritative=False)
    return answer.HasField("lookupTopicResponse")


async def test_new_credentials_of_the_same_role_go_on_without_an_answer(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        raw = await challenged(broker)
        end = int(time.time()) + 3600
        respond(raw, token("ann", exp=end))
        assert await raw.barrier() == []
        assert await looks_up(raw)
        assert [one.roles for one in broker.connections] == [Roles("ann", None, end)]


async def test_credentials_of_another_role_close_without_an_error(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        raw = await challenged(broker)
        respond(raw, token("superuser"))
        assert await raw.is_closed()


@pytest.mark.parametrize("shown", ["garbage", token("ann", exp=1), ""])
async def test_bad_credentials_close_with_an_error(tmp_path: Path, shown: str) -> None:
    async with secured(tmp_path) as broker:
        raw = await challenged(broker)
        respond(raw, shown)
        assert await outcome(raw) == FAILED


async def test_commands_are_served_until_the_next_check_and_then_silence_closes(tmp_path: Path) -> None:
    async with secured(tmp_path, refresh_check_s=0.4) as broker:
        raw = await challenged(broker)
        assert await looks_up(raw)
        assert await raw.is_closed()


async def test_a_client_that_cannot_renew_is_closed_without_a_challenge(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        raw = await refreshed(broker, supports_auth_refresh=False)
        assert await raw.is_closed()


async def test_a_token_that_has_ended_is_refused_on_every_other_connection(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        end = time.time() + 0.2
        shown = token("ann", exp=end)
        first = await Raw.open(broker.port)
        assert await connect(first, **with_token(shown)) == ("CONNECTED",)
        assert await first.is_closed()
        assert await connect(await Raw.open(broker.port), **with_token(shown)) == FAILED


async def test_credentials_that_nobody_asked_for_are_judged_too(tmp_path: Path) -> None:
    async with secured(tmp_path, anonymous_role="anon") as broker:
        raw = await Raw.open(broker.port)
        await connect(raw, **with_token(token("ann")))
        respond(raw, token("ann", exp=int(time.time()) + 99))
        assert await looks_up(raw)
        respond(raw, "garbage")
        assert await outcome(raw) == FAILED
        anonymous = await Raw.open(broker.port)
        await connect(anonymous)
        respond(anonymous, token("superuser"))
        assert await outcome(anonymous) == FAILED


# Attacks, and the time that finding out takes


async def test_no_command_comes_before_connect(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        for kind, fields in (
            ("LOOKUP", {"topic": "t", "request_id": 1}),
            ("PRODUCER", {"topic": "t", "producer_id": 1, "request_id": 1}),
            ("AUTH_RESPONSE", {"response": {"auth_method_name": "token", "auth_data": token("ann").encode()}}),
        ):  # fmt: skip
            raw = await Raw.open(broker.port)
            raw.send(kind, **fields)
            assert await raw.is_closed(), kind


async def test_what_is_sent_behind_a_refused_connect_is_never_done(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        raw = await Raw.open(broker.port)
        raw.send("CONNECT", client_version="raw", protocol_version=21, **with_token("garbage"))
        raw.send("PRODUCER", topic="persistent://public/wire/stolen", producer_id=1, request_id=1)
        assert await outcome(raw) == FAILED
        await asyncio.sleep(0)
        assert not broker.topics


async def test_a_peer_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async with running_broker(tmp_path, security=settings(), keep_alive_s=0.1) as broker:
        assert await (await Raw.open(broker.port)).is_closed()


class Gate(AuthenticationProvider):
    """Takes its time: until the test says so."""

    method = "gate"
    opened: asyncio.Event
    entered: asyncio.Event

    def __init__(self, settings: ServerSecurity) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        assert self.loop is not None

        async def wait() -> None:
            self.entered.set()
            await self.opened.wait()

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result()
        if data != b"good":
            raise AuthenticationError("bad")
        return Identity("ann")


@contextlib.asynccontextmanager
async def gated(directory: Path, **more: Any) -> AsyncIterator[tuple[BrokerService, Gate]]:
    async with running_broker(directory, security=settings(providers=(f"{__name__}.Gate",)), **more) as broker:
        assert broker.authenticator is not None
        (gate,) = broker.authenticator._providers
        assert isinstance(gate, Gate)
        gate.loop, gate.opened, gate.entered = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        try:
            yield broker, gate
        finally:
            gate.opened.set()


def send_gated(raw: Raw, data: bytes = b"good") -> None:
    raw.send("CONNECT", client_version="raw", protocol_version=21, auth_method_name="gate", auth_data=data)


@pytest.mark.parametrize("is_good", [True, False])
async def test_what_comes_while_it_is_found_out_who_connects_waits(tmp_path: Path, is_good: bool) -> None:
    async with gated(tmp_path) as (broker, gate):
        raw = await Raw.open(broker.port)
        send_gated(raw, b"good" if is_good else b"bad")
        raw.send("PRODUCER", topic="persistent://public/wire/behind", producer_id=1, request_id=1)
        await gate.entered.wait()
        raw.send("LOOKUP", topic="persistent://public/wire/t", request_id=2, authoritative=False)
        await asyncio.sleep(0.05)
        assert not broker.topics
        assert next(iter(broker.connections)).roles is None
        gate.opened.set()
        if not is_good:
            assert await outcome(raw) == FAILED
            assert not broker.topics
            return
        assert await outcome(raw) == ("CONNECTED",)
        kinds = [(await raw.receive()).command.type for _ in range(2)]
        assert set(kinds) == {BaseCommand.PRODUCER_SUCCESS, BaseCommand.LOOKUP_RESPONSE}


async def test_a_second_connect_meanwhile_breaks_the_protocol(tmp_path: Path) -> None:
    async with gated(tmp_path) as (broker, gate):
        raw = await Raw.open(broker.port)
        send_gated(raw)
        await gate.entered.wait()
        send_gated(raw)
        gate.opened.set()
        assert await outcome(raw) == ("CONNECTED",)
        assert await raw.is_closed()


async def test_a_peer_that_leaves_meanwhile_leaves_nothing_behind(tmp_path: Path) -> None:
    async with gated(tmp_path) as (broker, gate):
        raw = await Raw.open(broker.port)
        send_gated(raw)
        await gate.entered.wait()
        raw.writer.transport.abort()
        gate.opened.set()

        async def is_gone() -> bool:
            return not broker.connections

        await until(is_gone)
        again = await Raw.open(broker.port)
        send_gated(again)
        assert await outcome(again) == ("CONNECTED",)


async def test_a_provider_that_takes_too_long_does_not_hold_a_connection(tmp_path: Path) -> None:
    async with gated(tmp_path, keep_alive_s=0.2) as (broker, gate):
        raw = await Raw.open(broker.port)
        send_gated(raw)
        await gate.entered.wait()
        assert await raw.is_closed()
        assert not broker.connections


async def test_no_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shown = jwt.encode({"sub": "ann"}, b"y" * 32, "HS256")
    async with secured(tmp_path, providers=(PROVIDER_TOKEN, PROVIDER_BASIC), basic_auth_conf=HTPASSWD) as broker:
        assert await connect(await Raw.open(broker.port), **with_token(shown)) == FAILED
        password = {"auth_method_name": "basic", "auth_data": b"producer:hunter2"}
        assert await connect(await Raw.open(broker.port), **password) == FAILED
    assert ": method 'token': the token was rejected: InvalidSignatureError" in caplog.text
    assert "hunter2" not in caplog.text
    assert shown not in caplog.text
