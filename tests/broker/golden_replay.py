"""Replays the client's side of a recorded conversation and compares the broker's side.

A client's frame is sent once every broker's frame recorded before it has come. What the broker sends is compared
connection by connection, in three lanes that may overtake each other: receipts, messages, everything else. Where the
recording shows a pause, and at its end, a PING makes sure that nothing came that was not recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from magnetar.broker.service import BrokerService
from magnetar.wire.frames import Frame, encode_frame
from magnetar.wire.payload import open_payload, seal, verify_checksum
from magnetar.wire.pulsar_api_pb2 import BaseCommand, MessageMetadata, SingleMessageMetadata

from .raw import Raw

PAUSE_MS = 200
PROBE_S = 1.0
RECEIPTS = ("SEND_RECEIPT", "SEND_ERROR")
IGNORED_TEXTS = ("server_version", "feature_flags", "message", "error_message", "highest_sequence_id", "version")
MINUS_1 = str((1 << 64) - 1)
FOX = b"the quick brown fox jumps over the lazy dog, " * 4
NAME = re.compile(r"L\d+|<[a-z]+-\d+>")
PLACEHOLDER = re.compile(r"<[a-z]+(-\d+)?>")

Json = dict[str, Any]
Action = Callable[[BrokerService], Awaitable[object]]


@dataclass
class Lane:
    expected: list[Json] = field(default_factory=list)
    came: list[Json] = field(default_factory=list)


@dataclass
class Link:
    raw: Raw
    answers_in_order: bool
    lanes: dict[str, Lane] = field(default_factory=dict)
    closes: bool = False
    is_closed: bool = False
    pings_sent: int = 0
    pings_came: int = 0
    reader: asyncio.Task[None] | None = None

    def lane(self, command: Json) -> Lane:
        """Return the lane of a frame: one per producer for receipts, one per consumer for messages, and so on."""
        kind = command["type"]
        name = "the rest"
        if kind in RECEIPTS:
            name = f"answers to producer {_fields(command)['producer_id']}"
        elif kind in ("MESSAGE", "ACK_RESPONSE", "ACTIVE_CONSUMER_CHANGE"):
            name = f"{kind} to consumer {_fields(command)['consumer_id']}"
        elif kind == "PRODUCER_SUCCESS" or (not self.answers_in_order and "request_id" in _fields(command)):
            name = f"{kind} to request {_fields(command)['request_id']}"
        return self.lanes.setdefault(name, Lane())


class Replay:
    """One recorded conversation with one broker."""

    def __init__(
        self,
        broker: BrokerService,
        lines: list[Json],
        *,
        ignore: Callable[[Json], bool] = lambda _: False,
        seek_times: dict[str, int] | None = None,
        delay_ms: int = 0,
        answers_in_order: bool = True,
    ):
        self.broker = broker
        self.lines = lines
        self.began_ms = int(time.time() * 1000)
        self.seek_times = seek_times or {}  # by request id: the time meant, in ms since the beginning
        self.delay_ms = delay_ms  # of messages that are to be given out later
        self.answers_in_order = answers_in_order
        self.links: dict[int, Link] = {}
        self.bound: dict[str, str] = {}  # L1 -> "17", <producer-1> -> "standalone-…"
        self.came = asyncio.Event()
        self.ignore = ignore

    async def run(self, actions: dict[int, Action] | None = None) -> None:
        """Replay all lines; each of ``actions`` runs before its line number (the recording's header is line 0)."""
        last_ms = 0
        try:
            for number, line in enumerate(self.lines, 1):
                if (action := (actions or {}).get(number)) is not None:
                    await self._settle()
                    await self._barrier()
                    await action(self.broker)
                if line["dir"] == "B":
                    self._expect(line)
                    continue
                await self._settle()
                if line["t_ms"] - last_ms > PAUSE_MS:
                    await self._barrier()
                last_ms = line["t_ms"]
                if not self.ignore(line):
                    await self._play(line)
            await self._settle()
            await self._barrier()
        finally:
            for link in self.links.values():
                if link.reader is not None:
                    link.reader.cancel()
                await link.raw.close()

    # The client's part

    async def _play(self, line: Json) -> None:
        conn = line["conn"]
        if line.get("event") == "connect":
            link = self.links[conn] = Link(await Raw.open(self.broker.port), self.answers_in_order)
            link.reader = asyncio.create_task(self._read(link))
            return
        link = self.links[conn]
        if line.get("event") == "close":
            await self._barrier()
            link.is_closed = True
            await link.raw.close()
        elif "oversized_total_size" in line:
            link.raw.send_bytes(struct.pack(">I", line["oversized_total_size"]))
        elif "undecodable" in line:
            data = bytes.fromhex(line["undecodable"])
            link.raw.send_bytes(struct.pack(">I", line["frame_len"] - 4) + data)
        else:
            if line["command"]["type"] == "PONG":
                await self._pinged(link)
            link.raw.send_bytes(self._client_frame(line))

    async def _pinged(self, link: Link) -> None:
        """Wait for the PING answered by a recorded PONG; keep-alive PINGs exist only in recordings."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROBE_S):
                while not link.pings_came:
                    self.came.clear()
                    await self.came.wait()
        link.pings_came = 0

    def _client_frame(self, line: Json) -> bytes:
        command = ParseDict(self._with_bound(line["command"], line), BaseCommand())
        if command.seek.HasField("message_publish_time"):
            offset_ms = self.seek_times.get(str(command.seek.request_id), 0)
            command.seek.message_publish_time = self.began_ms + offset_ms
        if "metadata" not in line:
            return encode_frame(command)
        if command.send.num_messages == 1 and "batch" in line and not command.send.HasField("num_messages"):
            command.send.num_messages = len(line["batch"])
        metadata = ParseDict(self._with_bound(line["metadata"], line), MessageMetadata())
        if metadata.HasField("deliver_at_time"):
            metadata.deliver_at_time = int(time.time() * 1000) + self.delay_ms
        payload = seal(metadata, self._body(line))
        if line["checksum_ok"] is None:
            payload = payload[6:]
        elif not line["checksum_ok"]:
            payload = payload[:2] + bytes([payload[2] ^ 1]) + payload[3:]
        return encode_frame(command, payload)

    def _body(self, line: Json) -> bytes:
        if "batch" in line:
            items = []
            for item in line["batch"]:
                head = ParseDict(self._with_bound(item["metadata"], line), SingleMessageMetadata()).SerializeToString()
                items.append(struct.pack(">I", len(head)) + head + _bytes(item["payload"], None))
            return b"".join(items)
        return _bytes(line["payload"], line["payload_len"])

    def _with_bound(self, value: Any, line: Json) -> Any:
        """Replace names with the values that our broker sent; timestamps keep their distances."""
        if isinstance(value, dict):
            return {key: self._with_bound(each, line) for key, each in value.items()}
        if isinstance(value, list):
            return [self._with_bound(each, line) for each in value]
        if isinstance(value, str):
            if value in self.bound:
                return self.bound[value]
            if value == "<ms>":
                return str(self.began_ms + line["t_ms"])
            if re.fullmatch(r"L\d+", value):
                return str(4_000_000 + int(value[1:]))  # a ledger that the broker never named
        return value

    # The broker's part

    def _expect(self, line: Json) -> None:
        link = self.links[line["conn"]]
        if line.get("event") == "close":
            link.closes = True
        elif not self.ignore(line) and line["command"]["type"] != "PING":
            link.lane(line["command"]).expected.append(line)

    async def _read(self, link: Link) -> None:
        while (frame := await link.raw.receive_or_end(3600)) is not None:
            shown = _as_line(frame)
            kind = shown["command"]["type"]
            if kind == "PING":
                link.pings_came += 1
            elif kind == "PONG" and link.pings_sent:
                link.pings_sent -= 1
            elif not self.ignore(shown):
                link.lane(shown["command"]).came.append(shown)
            self.came.set()
        link.is_closed = True
        self.came.set()

    async def _settle(self) -> None:
        """Wait for all frames expected so far and compare them."""
        try:
            async with asyncio.timeout(30):
                while not all(self._is_complete(link) for link in self.links.values()):
                    self.came.clear()
                    await self.came.wait()
        except TimeoutError:
            missing = {n: {k: lane.expected[len(lane.came):][:2] for k, lane in link.lanes.items()
                           if len(lane.expected) > len(lane.came)} or f"close={link.closes}"
                       for n, link in self.links.items() if not self._is_complete(link)}  # fmt: skip
            raise AssertionError(f"did not come: {missing}") from None
        for conn, link in self.links.items():
            for lane in link.lanes.values():
                for expected, came in zip(lane.expected, lane.came, strict=False):
                    self._compare(f"connection {conn}", _essence(expected), _essence(came))
                done = min(len(lane.expected), len(lane.came))
                del lane.expected[:done], lane.came[:done]

    def _is_complete(self, link: Link) -> bool:
        if link.closes and not link.is_closed:
            return False
        return all(len(lane.came) >= len(lane.expected) for lane in link.lanes.values())

    async def _barrier(self) -> None:
        """Fail if a frame arrives that was not recorded."""
        for link in self.links.values():
            if not link.is_closed:
                link.pings_sent += 1
                link.raw.send("PING")
        async with asyncio.timeout(30):
            while any(link.pings_sent and not link.is_closed for link in self.links.values()):
                self.came.clear()
                await self.came.wait()
        for conn, link in self.links.items():
            for lane in link.lanes.values():
                assert len(lane.came) <= len(lane.expected), f"connection {conn}: not recorded: {lane.came}"

    def _compare(self, where: str, expected: Any, came: Any) -> None:
        if isinstance(expected, dict) and isinstance(came, dict):
            assert expected.keys() == came.keys(), f"{where}: recorded {expected}, came {came}"
            for key, value in expected.items():
                self._compare(f"{where}.{key}", value, came[key])
        elif isinstance(expected, list) and isinstance(came, list):
            assert len(expected) == len(came), f"{where}: recorded {expected}, came {came}"
            for index, (one, other) in enumerate(zip(expected, came, strict=True)):
                self._compare(f"{where}[{index}]", one, other)
        elif isinstance(expected, str) and NAME.fullmatch(expected):
            if expected.startswith("L") and came == MINUS_1:
                return  # our ledgers begin with their first entry: a topic without entries names none
            assert self.bound.setdefault(expected, str(came)) == str(came), f"{where}: {expected} is {self.bound}"
        elif isinstance(expected, str) and PLACEHOLDER.search(expected):
            pattern = ".+".join(re.escape(part) for part in PLACEHOLDER.split(expected) if part is not None)
            assert re.fullmatch(pattern, str(came)), f"{where}: recorded {expected!r}, came {came!r}"
        else:
            assert expected == came, f"{where}: recorded {expected!r}, came {came!r}"


def _fields(command: Json) -> Json:
    return next((value for key, value in command.items() if key != "type"), {})


def _bytes(payload: Json, length: int | None) -> bytes:
    data = payload["text"].encode() if "text" in payload else bytes.fromhex(payload["hex"])
    if length is not None and len(data) < length:
        if FOX.startswith(data):
            return FOX[:length]
        assert set(data) == {ord("x")}, "a cut payload that is not made of x"
        return b"x" * length
    return data


def _as_line(frame: Frame) -> Json:
    line: Json = {"command": MessageToDict(frame.command, preserving_proto_field_name=True)}
    if frame.payload:
        metadata, offset = open_payload(frame.payload)
        line["metadata"] = MessageToDict(metadata, preserving_proto_field_name=True)
        line["body"] = frame.payload[offset:]
        line["checksum_ok"] = verify_checksum(frame.payload)
    return line


def _essence(line: Json) -> Json:
    """Return the compared fields of a frame."""
    command = dict(line["command"])
    kind = command["type"]
    name = next((key for key in command if key != "type"), None)
    if name is not None:
        command[name] = {key: value for key, value in command[name].items() if key not in IGNORED_TEXTS}
        if kind == "CONNECTED":
            command[name].pop("feature_flags", None)
    essence: Json = {"command": command}
    if "metadata" in line:
        essence["metadata"] = {key: value for key, value in line["metadata"].items() if key != "publish_time"}
        essence["checksum_ok"] = line["checksum_ok"]
        essence["body"] = line["body"] if "body" in line else Replay._body(_UNBOUND, line)
    return essence


def _load(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def load(path: Path) -> tuple[Json, list[Json]]:
    """Return the header and the lines of a recording."""
    lines = _load(path)
    return lines[0], lines[1:]


_UNBOUND = Replay.__new__(Replay)
_UNBOUND.bound = {}
_UNBOUND.began_ms = 0
