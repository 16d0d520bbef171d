"""The demo's Spark step: a DataFrame function counts the same words, and must get the same result."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

from ...client.client import AsyncClient
from ...errors import InvalidConfig
from ...spark.session import check_ready
from ...wire.message_id import EARLIEST
from ..failure import Failure
from ..functions.functions import config_part, package_part
from ..functions.target import Target
from ..functions.trigger import bar, follow, lines
from ..rest import Admin
from .stream import LATER, WORDS

FUNCTION_FILE = Path(__file__).with_name("demo_spark_function.py")
COUNTS = "persistent://public/default/demo-spark-counts"
NAME = LATER.rpartition("/")[2]
_TARGET = Target("public", "default", NAME)


def why_not() -> str:
    """Return the reason to skip the Spark step, or an empty string."""
    try:
        check_ready("local[*]")
    except InvalidConfig as exc:
        return str(exc)
    return ""


def deploy_spark(rest: Admin) -> None:
    """Create the function; call this before messages are sent, so that its subscription retains them."""
    config = {
        "className": f"{FUNCTION_FILE.stem}.process",
        "inputs": [WORDS],
        "output": COUNTS,
        "runtimeEnv": "spark",
        "subscriptionPosition": "Earliest",
        "py": FUNCTION_FILE.name,
    }
    rest.send_parts("POST", _TARGET.path, config_part(config) | package_part(str(FUNCTION_FILE)))


def count_by_spark(service_url: str, admin_url: str, expected: Counter[str]) -> float:
    """Run the function on all streamed messages, compare each count, and return the duration in seconds.

    Raises:
        Failure: the run failed, or a count differs; the message contains the details.
    """
    began_s = time.monotonic()
    rest = Admin(admin_url)
    run_id = rest.post(f"{_TARGET.path}/trigger", noWait=True)["runId"]
    with bar(sys.stderr) if sys.stderr.isatty() else lines(sys.stderr) as show:
        run = follow(rest, _TARGET, run_id, show)
    if run["stage"] != "done":
        raise Failure(f"run {run_id} {run['stage']}: {run['reason']}")
    took_s = time.monotonic() - began_s
    found = asyncio.run(_read(service_url))
    if found != expected:
        word = next(word for word in {**found, **expected} if found[word] != expected[word])
        raise Failure(f"Spark counted {word!r} {found[word]:,} times, but a direct loop {expected[word]:,} times")
    return took_s


async def _read(service_url: str) -> Counter[str]:
    """Return the function's output counts; duplicates are added, so that the comparison fails."""
    counts: Counter[str] = Counter()
    async with AsyncClient(service_url) as client:
        reader = await client.create_reader(COUNTS, EARLIEST)
        while await reader.has_message_available():
            message = await reader.read_next()
            counts[message.key or ""] += int(message.data)
        await reader.close()
    return counts
