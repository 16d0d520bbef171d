"""Run the command line as a user does, and inspect its exit code and output."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .servers import COMMAND

TIMEOUT_S = 90.0
_LOGGED = re.compile(r"[0-9-]{10} [0-9:.]{12} (INFO|WARNING) ")


@dataclass(frozen=True)
class Answer:
    """The result of one command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output, which must be JSON only."""
        return json.loads(self.out)

    def ok(self) -> Answer:
        assert self.code == 0, f"exit code {self.code}: {self.out}{self.err}"
        return self

    def refused(self, *words: str) -> str:
        """Return the error line of a rejected command, after checking its exit code and words.

        Before it, a server may log that it is starting, and which keys have no effect.
        """
        assert self.code != 0, f"accepted: {self.out}"
        lines = [line for line in self.err.strip().splitlines() if not _LOGGED.match(line)]
        assert len(lines) == 1, f"not one line: {self.err!r}"
        assert "Traceback" not in self.out + self.err
        for word in words:
            assert word in lines[0], f"no {word!r} in {lines[0]!r}"
        return lines[0]


def call(
    *arguments: str,
    admin_url: str | None = None,
    service_url: str | None = None,
    data_dir: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Run `magnetar ARGUMENTS`, and return the result."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAGNETAR_")}
    if admin_url is not None:
        environment["MAGNETAR_ADMIN_URL"] = admin_url
    if service_url is not None:
        environment["MAGNETAR_SERVICE_URL"] = service_url
    if data_dir is not None:
        environment["MAGNETAR_DATA_DIR"] = str(data_dir)
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        timeout=timeout_s,
        check=False,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())
