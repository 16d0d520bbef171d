"""The phases of a broker soak: all consumers connect, load for the given time, and settling all messages."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pulsar
import uvloop
from magnetar.client import AsyncClient, ConsumerConfig

from tests.support.servers import Server, running

from ..soak.minutes import Minute, Watch, disk_mib
from ..soak.settings import Settings
from .account import Account, Faults
from .members import LETTERS, Client, Manner, Member, OfficialClient, OwnClient
from .passing import PassingTopics
from .publishing import OfficialSender, OwnSender, Publishing, Sender
from .topics import DEAD_LETTER_SUFFIX, NAMESPACE, OFFICIAL_EVERY, PREFIX, Source, body_of, topics
from .verdict import Events, Outcome, State
from .waiting import POLL_S, holds

SECONDS = 600.0
RATE = 2000.0
"""Total messages per second, suitable for two CPUs that also run all clients."""
CLIENTS, OFFICIAL_CLIENTS = 4, 2
STAY_S_MAX, STAY_SHARE = 20.0, 0.1
"""Average lifetime of a consumer, in seconds; in a short soak a share of the duration."""
UNLOAD_S = 2.0
LOOK_S = 2.0
JOINED_S = 60.0
SETTLED_S = 180.0
ACKNOWLEDGED_S = 5.0
"""Time until the broker has processed all acknowledgements, in seconds."""
HTTP_S = 30.0
LAST_MESSAGES = 5
"""Number of messages to each topic after all are settled, to show that no consumer is stuck."""
SMALL_LEDGERS = "managedLedgerMaxEntriesPerLedger=500\nstatsUpdateFrequencyInSecs=10\n"
"""The broker's configuration: topics roll over ledgers regularly, and consumed ones are deleted quickly."""
LETTERS_PATTERN = re.compile(f"{NAMESPACE}/{PREFIX}-.*{DEAD_LETTER_SUFFIX}")


class BrokerSoak:
    """A run of the soak."""

    def __init__(self, settings: Settings, directory: Path, rng: random.Random) -> None:
        self._settings = settings
        self._directory = directory
        self._rng = rng
        self._faults = Faults()
        self._sources = [Source(topic, self._chance()) for topic in topics()]
        self._accounts = [
            Account(source.topic, subscription, self._faults)
            for source in self._sources
            for subscription in source.topic.subscriptions
        ]
        self._manner = Manner(min(STAY_S_MAX, settings.seconds * STAY_SHARE))
        self._watch = Watch()
        self._unloads = 0

    def _chance(self) -> random.Random:
        """Return a separate random generator for each part, so that they are independent."""
        return random.Random(self._rng.getrandbits(64))

    def run(self) -> Outcome:
        """Run all phases.

        Raises:
            Exception: a task ended, or a wait timed out; the first line contains the reason.
        """
        config = self._directory / "broker.conf"
        config.write_text(SMALL_LEDGERS)
        with (
            running("broker", self._directory / "broker", "--config", str(config)) as server,
            self._official(server) as official,
        ):
            try:
                return uvloop.run(self._run(server, official))
            except BaseExceptionGroup as group:
                raise _first_of(group) from group

    @contextlib.contextmanager
    def _official(self, server: Server) -> Iterator[list[pulsar.Client]]:
        log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._directory / "official-client.log"))
        clients = [pulsar.Client(server.service_url, logger=log) for _ in range(OFFICIAL_CLIENTS)]
        try:
            yield clients
        finally:
            for client in clients:
                client.close()

    async def _run(self, server: Server, official: list[pulsar.Client]) -> Outcome:
        async with contextlib.AsyncExitStack() as stack:
            own = [await stack.enter_async_context(AsyncClient(server.service_url)) for _ in range(CLIENTS)]
            admin = httpx.AsyncClient(base_url=f"{server.web_url}/admin/v2/", timeout=HTTP_S)
            await stack.enter_async_context(admin)
            members = self._members(own, official)
            passing = PassingTopics(own[0], admin, self._chance(), self._faults)
            async with asyncio.TaskGroup() as group:
                staying = [group.create_task(member.run(self._manner)) for member in members]
                staying += [group.create_task(self._read_letters(own[0])), group.create_task(passing.watch())]
                await self._joined(members)
                publishing = await self._publishing(own, official)
                passers = [group.create_task(passing.run()), group.create_task(self._unload(admin))]
                minutes = await self._minutes(server, publishing)
                self._manner.stays = True
                await self._end(passers)
                settled_s = await self._settle(publishing, members)
                states = await self._states(admin, members)
                await publishing.close()
                await self._end(staying)
        joins = sum(member.joins for member in members)
        events = Events(joins, passing.lives, self._unloads, settled_s)
        lives = list(self._watch.lives.values())
        return Outcome(self._sources, self._accounts, self._faults, states, events, minutes, lives)

    def _members(self, own: list[AsyncClient], official: list[pulsar.Client]) -> list[Member]:
        """Return all members; some of each type use the official client, on suitable topics."""
        own_clients = itertools.cycle([OwnClient(client) for client in own])
        official_clients = itertools.cycle([OfficialClient(client) for client in official])
        members: list[Member] = []
        for account in self._accounts:
            topic = account.topic
            for number in range(account.subscription.consumers):
                suits = topic.is_persistent and not topic.has_schema and not topic.is_failing
                is_official = suits and len(members) % OFFICIAL_EVERY == 0
                client: Client = next(official_clients) if is_official else next(own_clients)
                members.append(Member(account, number, client, self._chance(), self._faults))
        return members

    async def _joined(self, members: list[Member]) -> None:
        if not await holds(lambda: all(member.joins for member in members), JOINED_S):
            late = sum(not member.joins for member in members)
            raise RuntimeError(f"{late} of {len(members)} consumers did not connect within {JOINED_S:g} s")

    async def _publishing(self, own: list[AsyncClient], official: list[pulsar.Client]) -> Publishing:
        senders: list[Sender] = []
        for number, source in enumerate(self._sources):
            if source.topic.is_official:
                senders.append(await OfficialSender.open(official[number % len(official)], source, self._faults))
            else:
                senders.append(await OwnSender.open(own[number % len(own)], source, self._faults))
        return Publishing(self._sources, senders, self._chance(), self._faults)

    async def _read_letters(self, client: AsyncClient) -> None:
        """Settle messages in all dead letter topics, until cancelled."""
        accounts = {account.topic.dead_letters_of(account.subscription): account for account in self._accounts}
        config = ConsumerConfig(type="Shared", initial_position="Earliest")
        consumer: Any = await client.subscribe(LETTERS_PATTERN, LETTERS, config)
        while True:
            message = await consumer.receive()
            try:
                accounts[message.topic].bury(body_of(message.data))
            except (ValueError, TypeError) as error:
                self._faults.add("damaged dead letter", f"{message.topic} {message.message_id}: {error}")
            consumer.ack(message)

    async def _unload(self, admin: httpx.AsyncClient) -> None:
        """Unload topics one after the other, until cancelled."""
        rng = self._chance()
        persistent = [source.topic for source in self._sources if source.topic.is_persistent]
        while True:
            await asyncio.sleep(UNLOAD_S)
            path = rng.choice(persistent).name.replace("://", "/")
            (await admin.put(f"{path}/unload")).raise_for_status()
            self._unloads += 1

    # -- the time of load -----------------------------------------------------------------------------------------

    async def _minutes(self, server: Server, publishing: Publishing) -> list[Minute]:
        processes = [("broker", psutil.Process(server.pid)), ("clients", psutil.Process())]
        self._watch.look(processes, time.time())
        minutes = []
        for number in range(round(self._settings.seconds / self._settings.minute_s)):
            minutes.append(await self._minute(processes, publishing, number))
            print(minutes[-1], flush=True)
        return minutes

    async def _minute(self, processes: list[tuple[str, psutil.Process]], publishing: Publishing, number: int) -> Minute:
        length_s = self._settings.minute_s
        began, published, settled = time.monotonic(), publishing.published, self._settled()
        cpu_s, others_s = self._watch.cpu_s(), self._watch.others_s()
        async with asyncio.TaskGroup() as group:
            load = group.create_task(publishing.run(RATE, length_s))
            while not load.done():
                self._watch.look(processes, time.time())
                await asyncio.wait([load], timeout=LOOK_S)
        took_s = time.monotonic() - began
        return Minute(
            number,
            took_s,
            {"published": publishing.published - published, "settled": self._settled() - settled},
            {"unsettled": self._unsettled()},
            self._watch.memory_mib(),
            self._watch.cpu_s() - cpu_s,
            max(0.0, self._watch.others_s() - others_s) / took_s / (psutil.cpu_count() or 1),
            disk_mib(self._directory),
            (),
        )

    def _settled(self) -> int:
        return sum(account.settled() for account in self._accounts)

    def _unsettled(self) -> int:
        """Return the number of messages that subscriptions have not settled yet."""
        expected = sum(len(source.topic.subscriptions) * sum(source.published) for source in self._sources)
        return expected - self._settled()

    # -- the end --------------------------------------------------------------------------------------------------

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _settle(self, publishing: Publishing, members: list[Member]) -> float:
        """Wait until all messages are settled, then again for some last messages, which shows that consumers are not
        stuck.

        Returns: the duration of the first wait, in seconds.
        """
        began = time.monotonic()
        await publishing.stored()
        is_settled = await holds(
            lambda: all(member.is_present for member in members) and not self._unsettled(), SETTLED_S
        )
        settled_s = time.monotonic() - began
        if is_settled:
            publishing.burst_to_all(LAST_MESSAGES)
            await publishing.stored()
            await holds(lambda: not self._unsettled(), SETTLED_S)
        return settled_s

    async def _states(self, admin: httpx.AsyncClient, members: list[Member]) -> list[State]:
        """Return the broker's statistics for the persistent subscriptions, after their last acknowledgements have
        arrived.
        """
        found = []
        for account in self._accounts:
            if not account.topic.is_persistent:
                continue
            expected = sum(member.account is account for member in members)
            deadline = time.monotonic() + ACKNOWLEDGED_S
            while True:
                state = await _state(admin, account, expected)
                if state.is_clear or time.monotonic() > deadline:
                    break
                await asyncio.sleep(POLL_S)
            found.append(state)
        return found


def _first_of(group: BaseException) -> BaseException:
    """Return the first error of a possibly nested exception group."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


async def _state(admin: httpx.AsyncClient, account: Account, expected: int) -> State:
    answer = await admin.get(f"{account.topic.name.replace('://', '/')}/stats")
    stats = answer.raise_for_status().json()["subscriptions"][account.subscription.name]
    return State(str(account), stats["msgBacklog"], stats["unackedMessages"], len(stats["consumers"]), expected)
