"""`kill -9` of the broker under changes of policies: what was answered holds, what was refused does not, none is half.

Policies of a namespace and of two topics, settings of the broker, and new namespaces with policies of their own. Each
writer owns some of them and knows what they must be: what was answered last, or what it asked for without an answer.
Several writers change one record of the metadata store at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.broker.raw import Raw
from tests.support.servers import Server

NAMESPACE = "public/policed"
TOPIC = f"persistent://{NAMESPACE}/t"
AT_BROKER, AT_NAMESPACE = "brokers/configuration", f"namespaces/{NAMESPACE}"
AT_TOPIC, AT_OTHER = f"persistent/{NAMESPACE}/t", f"persistent/{NAMESPACE}/other"
TYPES = ("Exclusive", "Failover", "Key_Shared", "Shared")
TYPE_NUMBERS = {"Exclusive": 0, "Shared": 1, "Failover": 2, "Key_Shared": 3}
UNLIMITED_PRODUCERS = 4
"""So many are let in where there is no limit, as far as is tried."""
PROGRESS = 25
"""Answers between two kills, at least."""
PROGRESS_TIMEOUT_S = 60
KILL_WITHIN_S = 0.3

Value = Any
Make = Callable[[random.Random, int], Value]
"""Returns a value; the number is another one each time."""
Snapshot = dict[str, Value]
"""Values by path; what is not set is not there."""


@dataclass(frozen=True)
class Kind:
    """A policy as it is set on one level or several.

    Attributes:
        make: returns a value that is taken.
        refused: what is refused.
    """

    make: Make
    refused: Value


def _retention(_: random.Random, number: int) -> Value:
    return {"retentionTimeInMinutes": number, "retentionSizeInMB": number + 1}


def _dispatch_rate(_: random.Random, number: int) -> Value:
    return {
        "dispatchThrottlingRateInMsg": 10_000 + number,
        "dispatchThrottlingRateInByte": 10_000_000 + number,
        "relativeToPublishRate": number % 2 == 0,
        "ratePeriodInSecond": 1 + number % 7,
    }


def _subscribe_rate(_: random.Random, number: int) -> Value:
    return {"subscribeThrottlingRatePerConsumer": 1000 + number, "ratePeriodInSecond": 1 + number % 7}


def _inactivity(rng: random.Random, number: int) -> Value:
    return {
        "inactiveTopicDeleteMode": rng.choice(("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")),
        "maxInactiveDurationSeconds": 100_000 + number,
        "deleteWhileInactive": number % 2 == 0,
    }


def _types(rng: random.Random, _: int) -> Value:
    return sorted(rng.sample(TYPES, rng.randint(1, 3)))


def _types_text(rng: random.Random, number: int) -> Value:
    return ",".join(_types(rng, number))


RETENTION = Kind(_retention, {"retentionTimeInMinutes": 5, "retentionSizeInMB": 0})
PRODUCERS = Kind(lambda rng, _: rng.randint(1, UNLIMITED_PRODUCERS - 1), -1)
SIZE = Kind(lambda _, number: 1000 + number, -1)
SUBSCRIPTION_TYPES = Kind(_types, ["Shared", "Bogus"])
AUTO = Kind(lambda rng, _: {"allowAutoSubscriptionCreation": rng.random() < 0.5}, ["no object"])
DISPATCH_RATE = Kind(_dispatch_rate, {"dispatchThrottlingRateInMsg": "many"})
SUBSCRIBE_RATE = Kind(_subscribe_rate, {"subscribeThrottlingRatePerConsumer": "many"})
INACTIVITY = Kind(_inactivity, {"inactiveTopicDeleteMode": "bogus"})


def _on_topic(topic: str) -> dict[str, Kind]:
    policies = {
        "retention": RETENTION, "maxProducers": PRODUCERS, "maxMessageSize": SIZE, "dispatchRate": DISPATCH_RATE,
        "subscriptionTypesEnabled": SUBSCRIPTION_TYPES, "autoSubscriptionCreation": AUTO,
        "subscribeRate": SUBSCRIBE_RATE, "inactiveTopicPolicies": INACTIVITY,
    }  # fmt: skip
    return {f"{topic}/{name}": kind for name, kind in policies.items()}


OF_TOPIC, OF_OTHER = _on_topic(AT_TOPIC), _on_topic(AT_OTHER)
OF_NAMESPACE = {
    path.replace(AT_TOPIC, AT_NAMESPACE).replace("maxProducers", "maxProducersPerTopic"): kind
    for path, kind in OF_TOPIC.items()
    if kind is not SIZE
}
OF_BROKER = {
    f"{AT_BROKER}/subscriptionTypesEnabled": Kind(_types_text, "Bogus"),
    f"{AT_BROKER}/allowAutoSubscriptionCreation": Kind(lambda rng, _: rng.choice(("true", "false")), "maybe"),
    f"{AT_BROKER}/dispatchThrottlingRatePerTopicInMsg": Kind(lambda _, number: f"{20_000 + number}", "many"),
    f"{AT_BROKER}/dispatchThrottlingRatePerTopicInByte": Kind(lambda _, number: f"{20_000_000 + number}", "many"),
    f"{AT_BROKER}/subscribeThrottlingRatePerConsumer": Kind(lambda _, number: f"{2000 + number}", "many"),
    f"{AT_BROKER}/brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": Kind(
        lambda _, number: f"{200_000 + number}", "long"
    ),
}
NEW_NAMESPACE = {
    "retention_policies": RETENTION, "max_producers_per_topic": PRODUCERS,
    "subscription_types_enabled": SUBSCRIPTION_TYPES, "inactive_topic_policies": INACTIVITY,
}  # fmt: skip


class Writer:
    """Changes policies one after the other; nobody else changes these.

    Attributes:
        known: what must be in force.
        unanswered: what may be in force in its place, because a change got no answer; None if there is no such.
    """

    def __init__(self, rng: random.Random, numbers: Iterator[int], kinds: Mapping[str, Kind]) -> None:
        self.known: Snapshot = {}
        self.unanswered: Snapshot | None = None
        self.answers = 0
        self.refusals = 0
        self.lost_answers = 0
        self.taken_without_answer = 0
        self._rng = rng
        self._numbers = numbers
        self._kinds = kinds

    async def run(self, http: httpx.AsyncClient, stopping: asyncio.Event) -> None:
        """Change until told to stop, or until the broker goes away."""
        while not stopping.is_set() and self.unanswered is None:
            await self.change(http)
        self.lost_answers += self.unanswered is not None

    async def change(self, http: httpx.AsyncClient) -> None:
        """Set one, remove one, or ask for what is refused."""
        path = self._rng.choice(list(self._kinds))
        kind = self._kinds[path]
        choice = self._rng.random()
        rest = {other: value for other, value in self.known.items() if other != path}
        if choice < 0.15:
            await self._ask(http, "POST", path, kind.refused, None)
        elif choice < 0.35:
            await self._ask(http, "DELETE", path, None, rest)
        else:
            value = kind.make(self._rng, next(self._numbers))
            await self._ask(http, "POST", path, value, rest | {path: value})

    async def _ask(self, http: httpx.AsyncClient, method: str, path: str, body: Value, after: Snapshot | None) -> None:
        """Send a request.

        Args:
            http: to the broker.
            method: of the request.
            path: of the policy.
            body: what is sent; a setting of the broker is sent in the path.
            after: what holds once it is answered; None if it is to be refused.
        """
        if path.startswith(AT_BROKER) and method != "DELETE":
            path, body = f"{path}/{body}", None
        try:
            answer = await http.request(method, path, json=body)
        except httpx.TransportError:
            self.unanswered = self.known if after is None else after
            return
        is_as_expected = answer.is_success if after is not None else answer.is_client_error
        assert is_as_expected, f"{method} {path} {body}: {answer.status_code} {answer.text}"
        self.answers += 1
        if after is None:
            self.refusals += 1
        else:
            self.known = after

    async def check(self, http: httpx.AsyncClient) -> None:
        """Compare with what the broker says; that is what is known from now on."""
        found = await self.read(http)
        allowed = [self.known] if self.unanswered is None else [self.known, self.unanswered]
        differing = {
            path: (found.get(path), [each.get(path) for each in allowed])
            for path in {*found, *itertools.chain(*allowed)}
            if any(each.get(path) != found.get(path) for each in allowed)
        }
        assert found in allowed, f"found, and what may be (the last without an answer): {differing}"
        self.taken_without_answer += found != self.known
        self.known, self.unanswered = found, None

    async def read(self, http: httpx.AsyncClient) -> Snapshot:
        """Return what the broker says."""
        found = {}
        for path in self._kinds:
            if value := await read_json(http, path):
                found[path] = value
        return found


class SettingsWriter(Writer):
    """Changes settings of the broker, which are read all at once."""

    async def read(self, http: httpx.AsyncClient) -> Snapshot:
        """Return what the broker says."""
        values = await read_json(http, f"{AT_BROKER}/values")
        return {path: value for name, value in values.items() if (path := f"{AT_BROKER}/{name}") in self._kinds}


class TopicWriter(Writer):
    """Has a topic alone, and removes all of its policies at once from time to time."""

    async def change(self, http: httpx.AsyncClient) -> None:
        """Change one policy or all."""
        if len(self.known) > 3 and self._rng.random() < 0.3:
            await self._ask(http, "DELETE", f"{AT_OTHER}/policies", None, {})
        else:
            await super().change(http)


class Creator(Writer):
    """Creates namespaces with several policies, and deletes them: they are there with all of them or not at all."""

    async def change(self, http: httpx.AsyncClient) -> None:
        """Create a namespace, or delete one."""
        if self.known and self._rng.random() < 0.4:
            path = self._rng.choice(list(self.known))
            rest = {other: value for other, value in self.known.items() if other != path}
            await self._ask(http, "DELETE", path, None, rest)
            return
        number = next(self._numbers)
        policies = {field: kind.make(self._rng, number) for field, kind in self._kinds.items()}
        path = f"namespaces/public/n{number}"
        if self._rng.random() < 0.15:
            refused = policies | {"max_producers_per_topic": -1}
            await self._ask(http, "PUT", path, refused, None)
        else:
            await self._ask(http, "PUT", path, policies, self.known | {path: policies})

    async def read(self, http: httpx.AsyncClient) -> Snapshot:
        """Return what the broker says."""
        found = {}
        for name in await read_json(http, "namespaces/public"):
            if name.startswith("public/n"):
                policies = await read_json(http, f"namespaces/{name}")
                found[f"namespaces/{name}"] = {field: policies.get(field) for field in self._kinds}
        return found


async def read_json(http: httpx.AsyncClient, path: str) -> Any:
    answer = (await http.get(path)).raise_for_status()
    return answer.json() if answer.content else None


class Effects:
    """What the policies of a topic do, compared with what they say."""

    def __init__(self, broker: Server, http: httpx.AsyncClient, known: Snapshot) -> None:
        self._port = int(broker.service_url.rsplit(":", 1)[1])
        self._http = http
        self._known = known

    def _first(self, name: str, at_namespace: str = "") -> Value:
        """Return what is set for the topic, or else for its namespace."""
        value = self._known.get(f"{AT_TOPIC}/{name}")
        return self._known.get(f"{AT_NAMESPACE}/{at_namespace or name}") if value is None else value

    def _setting(self, name: str, default: str) -> str:
        value: str = self._known.get(f"{AT_BROKER}/{name}", default)
        return value

    async def check(self, names: Iterator[int]) -> None:
        """Compare what is in force, what is let in and what is refused."""
        await self._check_applied()
        raw = await Raw.connected(self._port)
        try:
            await self._check_subscriptions(raw, names)
            await self._check_producers(raw)
        finally:
            await raw.close()

    async def _check_applied(self) -> None:
        expected = {
            "retention": self._first("retention") or {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
            "dispatchRate": self._first("dispatchRate")
            or {
                "dispatchThrottlingRateInMsg": int(self._setting("dispatchThrottlingRatePerTopicInMsg", "0")),
                "dispatchThrottlingRateInByte": int(self._setting("dispatchThrottlingRatePerTopicInByte", "0")),
                "relativeToPublishRate": False,
                "ratePeriodInSecond": 1,
            },
        }
        for name, value in expected.items():
            found = await read_json(self._http, f"{AT_TOPIC}/{name}?applied=true")
            assert found == value, f"{name} in force is {found}, not {value}"
        rate = await read_json(self._http, f"{AT_TOPIC}/subscribeRate?applied=true")
        wanted = self._first("subscribeRate") or {
            "subscribeThrottlingRatePerConsumer": int(self._setting("subscribeThrottlingRatePerConsumer", "0"))
        }
        assert wanted.items() <= rate.items(), f"the subscribe rate in force is {rate}, not {wanted}"
        inactivity = await read_json(self._http, f"{AT_TOPIC}/inactiveTopicPolicies?applied=true")
        after_s = self._setting("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "")
        wanted = self._first("inactiveTopicPolicies") or (
            {"maxInactiveDurationSeconds": int(after_s)} if after_s else {}
        )
        assert wanted.items() <= inactivity.items(), f"inactive topics are {inactivity}, not {wanted}"

    async def _check_producers(self, raw: Raw) -> None:
        limit = self._first("maxProducers", "maxProducersPerTopic") or UNLIMITED_PRODUCERS
        let_in = 0
        for producer_id in range(1, UNLIMITED_PRODUCERS + 1):
            answer = await raw.request("PRODUCER", topic=TOPIC, producer_id=producer_id, request_id=producer_id)
            let_in += answer.type == BaseCommand.PRODUCER_SUCCESS
        assert let_in == limit, f"{let_in} producers are let in, not {limit}"
        size = self._known.get(f"{AT_TOPIC}/maxMessageSize")
        for sequence_id, (length, is_taken) in enumerate(((500, True), (1000 if size is None else size + 1, not size))):
            raw.send_message(b"x" * length, producer_id=1, sequence_id=sequence_id)
            kind = (await raw.receive()).command.type
            wanted = BaseCommand.SEND_RECEIPT if is_taken else BaseCommand.SEND_ERROR
            assert kind == wanted, f"{length} bytes, of {size} at most: {BaseCommand.Type.Name(kind)}"

    async def _check_subscriptions(self, raw: Raw, names: Iterator[int]) -> None:
        types = self._first("subscriptionTypesEnabled")
        types = types or self._setting("subscriptionTypesEnabled", ",".join(TYPES)).split(",")
        override = self._first("autoSubscriptionCreation")
        is_created = (
            self._setting("allowAutoSubscriptionCreation", "true") == "true"
            if override is None
            else override["allowAutoSubscriptionCreation"]
        )
        for kind in TYPES:
            for durable, is_let_in in ((False, kind in types), (True, kind in types and is_created)):
                number = next(names)
                answer = await raw.request(
                    "SUBSCRIBE", topic=TOPIC, subscription=f"s{number}", subType=TYPE_NUMBERS[kind], durable=durable,
                    consumer_id=number, request_id=number,
                )  # fmt: skip
                said = (
                    f"{kind}, durable {durable}: {BaseCommand.Type.Name(answer.type)}, of {types}, created {is_created}"
                )
                assert (answer.type == BaseCommand.SUCCESS) is is_let_in, said


async def phase(broker: Server, writers: list[Writer], rng: random.Random, *, kills: bool) -> None:
    """Let all writers change policies for a random time; then they stop, or the broker is killed under them."""
    stopping = asyncio.Event()
    wanted = sum(writer.answers for writer in writers) + PROGRESS
    async with admin(broker) as http:
        tasks = [asyncio.create_task(writer.run(http, stopping)) for writer in writers]
        try:
            async with asyncio.timeout(PROGRESS_TIMEOUT_S):
                while sum(writer.answers for writer in writers) < wanted:
                    for task in tasks:
                        if task.done():
                            task.result()
                            raise AssertionError("the broker went away")
                    await asyncio.sleep(0.005)
            await asyncio.sleep(rng.uniform(0, KILL_WITHIN_S))  # the random moment, not a wait for anything
            if kills:
                await asyncio.to_thread(broker.kill)
            stopping.set()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


def admin(broker: Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"{broker.web_url}/admin/v2/", timeout=60)


async def check(broker: Server, writers: list[Writer], names: Iterator[int]) -> None:
    """Compare what is set, and what it does."""
    async with admin(broker) as http:
        for writer in writers:
            await writer.check(http)
        known = {path: value for writer in writers for path, value in writer.known.items()}
        await Effects(broker, http, known).check(names)


async def rounds(broker: Server, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    numbers, names = itertools.count(1), itertools.count(1)
    async with admin(broker) as http:
        for path in (AT_NAMESPACE, AT_TOPIC, AT_OTHER):
            (await http.put(path)).raise_for_status()
    writers = [
        *(Writer(rng, numbers, half) for kinds in (OF_TOPIC, OF_NAMESPACE) for half in halves(kinds)),
        *(SettingsWriter(rng, numbers, half) for half in halves(OF_BROKER)),
        TopicWriter(rng, numbers, OF_OTHER),
        Creator(rng, numbers, NEW_NAMESPACE),
    ]
    for _ in range(kills):
        await phase(broker, writers, rng, kills=False)
        await check(broker, writers, names)
        await phase(broker, writers, rng, kills=True)
        await asyncio.to_thread(broker.restart)
        await check(broker, writers, names)
    lost = sum(writer.lost_answers for writer in writers)
    assert lost, "each change had an answer: nothing was tested"
    assert all(writer.refusals for writer in writers) or kills < 10
    taken = sum(writer.taken_without_answer for writer in writers)
    print(
        f"seed {seed}: {sum(writer.answers for writer in writers)} answers, {lost} without one, {taken} of them taken"
    )


def halves(kinds: Mapping[str, Kind]) -> list[dict[str, Kind]]:
    """Return every other policy, and the rest."""
    items = list(kinds.items())
    return [dict(items[::2]), dict(items[1::2])]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_kills_keep_what_was_answered(broker: Server) -> None:
    await rounds(broker, kills=2, seed=20261123)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
async def test_ten_kills_keep_what_was_answered(broker: Server, seed: int) -> None:
    await rounds(broker, kills=10, seed=seed)
