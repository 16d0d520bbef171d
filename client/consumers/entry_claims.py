"""Claims of entries: acknowledgement before processing, for at-most-once delivery."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...errors import ConnectionLost
from .acknowledger import Acknowledger
from .received import ReceivedEntry, position_of

log = logging.getLogger(__name__)


def claim_entries(
    topic: str, entries: Sequence[ReceivedEntry], acks: Acknowledger, is_closed: Callable[[], bool]
) -> asyncio.Future[list[ReceivedEntry]]:
    """Acknowledge whole entries; return a future of all of them if the claim is valid, or of none.

    Args:
        topic: full name, for the log.
        entries: entries of one consumer.
        acks: the consumer's acknowledgements.
        is_closed: whether the consumer is closed.
    """
    given = list(entries)
    claimed: asyncio.Future[list[ReceivedEntry]] = asyncio.get_running_loop().create_future()

    def settle(claim: asyncio.Future[None]) -> None:
        error = claim.exception()
        if claimed.done():
            return
        claimed.set_result([] if error is not None else given)
        if error is not None and not isinstance(error, ConnectionLost) and not is_closed():
            # The broker still assigns them to this consumer, and would redeliver them only on the next connection.
            log.warning("%s: cannot claim %d entries, requesting redelivery: %s", topic, len(given), error)
            for entry in given:
                acks.negative(position_of(entry))

    acks.claim([position_of(entry) for entry in given]).add_done_callback(settle)
    return claimed
