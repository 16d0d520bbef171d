"""A separate process that constantly sends small requests to a server and reports the longest latency.

Run with the server's address: ``http://…`` is asked for a small page, ``bk://…`` for a key of a state table. Each line
of standard input is answered with the longest latency since the last one, in milliseconds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from urllib.parse import urlsplit

PAUSE_S = 0.005


def http_request(url: str) -> Callable[[], None]:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def ask() -> None:
        connection.request("GET", parts.path)
        connection.getresponse().read()

    return ask


def state_request(url: str) -> Callable[[], None]:
    from magnetar.state.client import TableClient

    client = TableClient(url)

    def ask() -> None:
        client.read("probe/default/table", [b"key"], timeout_s=120)

    return ask


def main(url: str) -> None:
    ask = (http_request if url.startswith("http") else state_request)(url)
    longest_s = [0.0]

    def sample() -> None:
        while True:
            began_s = time.monotonic()
            ask()
            longest_s[0] = max(longest_s[0], time.monotonic() - began_s)
            time.sleep(PAUSE_S)

    ask()
    threading.Thread(target=sample, daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        found_s, longest_s[0] = longest_s[0], 0.0
        print(found_s * 1000, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
