"""Runs the programs on official clients, each in one process on one broker."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Sequence

from tests.clients import programs
from tests.support.pulsar import Broker

PROGRAM_TIMEOUT_S = 240.0


def play(program: str, client: str, broker: Broker, names: Sequence[str]) -> dict[str, str]:
    """Return the output of a client's program for each name: JSON, or `error` and the error.

    Skips where the client's language is not installed, and fails where it must be.

    Args:
        program: `scenarios` or `details`.
        client: one of `programs.CLIENTS`.
        broker: where it plays.
        names: of scenarios or details.
    """
    prefix = f"persistent://public/default/{client}-{uuid.uuid4().hex[:8]}"
    command = [*programs.of_client(client, program), broker.service_url, broker.web_url, prefix, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S)
    lines = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    assert list(lines) == list(names), f"{client} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-3000:]}"
    return lines
