"""The program of `HttpReceiver`, which requires only Python.

Arguments: the port, and the file that takes what comes. Each body is a line of it, with the request's headers. A body
that is no JSON object is answered with 422.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1


class Receiver:
    """Responds once the body has been written to the file."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab")  # noqa: SIM115  as long as the process

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method = line.split(b" ")[0]
                headers: dict[str, str] = {}
                while (line := (await reader.readline()).strip()) != b"":
                    name, _, text = line.partition(b":")
                    headers[name.decode().lower()] = text.strip().decode()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status = self.take(headers, body) if method in (b"POST", b"PUT") else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(status)}\r\n\r\n{status}".encode())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def take(self, headers: dict[str, str], body: bytes) -> str:
        try:
            value: Any = json.loads(body.decode())
        except (ValueError, RecursionError):
            return "422 Unprocessable Entity"
        if not isinstance(value, dict):
            return "422 Unprocessable Entity"
        self._file.write(json.dumps({"headers": headers, "value": value}).encode() + b"\n")
        self._file.flush()  # it survives the process's end; tests do not cut the power
        return "200 OK"


async def main() -> None:
    receiver = Receiver(sys.argv[2])
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 22)
    async with server:
        await server.serve_forever()


def drop_rights() -> None:
    """Switch to the user set by the tests, and still end with the tests."""
    if "MAGNETAR_TEST_UID" in os.environ:
        os.setgroups([])
        os.setgid(int(os.environ["MAGNETAR_TEST_GID"]))
        os.setuid(int(os.environ["MAGNETAR_TEST_UID"]))
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    drop_rights()
    asyncio.run(main())
