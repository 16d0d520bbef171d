"""A WebSocket server that stores messages in files and sends all of them to each subscriber.

    python websocket_program.py PORT DIRECTORY

Each path of the URL has messages of its own. A client whose first message is ``subscribe`` is sent everything, from the
beginning, and what comes later. One that sends ``put``, and messages behind it, has them kept, and gets ``kept N`` when
the first N are on disk after ``sync``. A request without ``Authorization: Bearer secret`` is refused.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from http import HTTPStatus
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response


class Log:
    """Stored messages: one base64 line per message, prefixed by a letter for its kind."""

    def __init__(self, path: Path) -> None:
        whole = path.read_bytes() if path.exists() else b""
        self._file = path.open("ab")
        self._file.truncate(whole.rfind(b"\n") + 1)
        self.messages = [self._read(line) for line in whole.split(b"\n")[:-1]]
        self.grown = asyncio.Condition()

    @staticmethod
    def _read(line: bytes) -> str | bytes:
        data = base64.b64decode(line[1:])
        return data.decode() if line[:1] == b"t" else data

    async def sync(self, messages: list[str | bytes]) -> None:
        for message in messages:
            data = message.encode() if isinstance(message, str) else message
            self._file.write((b"t" if isinstance(message, str) else b"b") + base64.b64encode(data) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.messages += messages
        async with self.grown:
            self.grown.notify_all()


async def follow(log: Log, connection: ServerConnection) -> None:
    sent = 0

    def has_more() -> bool:
        return sent < len(log.messages)

    while True:
        while has_more():
            await connection.send(log.messages[sent])
            sent += 1
        async with log.grown:
            await log.grown.wait_for(has_more)


async def main(port: int, directory: Path) -> None:
    logs: dict[str, Log] = {}

    async def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        name = connection.request.path.strip("/")
        log = logs.get(name) or logs.setdefault(name, Log(directory / f"{name}.messages"))
        if await connection.recv() == "put":
            new: list[str | bytes] = []
            async for message in connection:
                if message != "sync":
                    new.append(message)
                    continue
                await log.sync(new)
                await connection.send(f"kept {len(new)}")
                new = []
            return
        await follow(log, connection)

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") == "Bearer secret":
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "who are you?\n")

    async with serve(handle, "127.0.0.1", port, process_request=admit, max_size=None):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
