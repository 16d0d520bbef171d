"""Options of `df.writeStream.format("magnetar").option(...)`, and the resulting guarantee.

A repeated task has the same rows in the same order if each task of the plan only maps the rows that it reads, or if the
sink sorts the rows by a unique key (Spark does not allow sorting a stream before the sink). The options may state which
of the two applies. Otherwise the plan decides (`plan_verdict`): rows are written exactly once if its batches are known
to be repeatable, and at least once otherwise. The options are verified: a key that is not unique fails the task, and
differing rows in a repeated batch are detected (`epochs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....errors import InvalidConfig
from ..option_names import STREAM_WRITE_OPTIONS, boolean, known
from ..options import WriteOptions, common_write_options

_ADDRESSES = "exactly-once writes require the options topic and admin.url, to enable deduplication of the topic"
_REMEDY = (
    "set sortBy=<columns that together are unique>, or unshuffled=true if the query does not move rows between tasks"
    " (no"
    " groupBy, join, distinct, dropDuplicates, repartition) and uses no clock or random numbers"
)


@dataclass(frozen=True, kw_only=True)
class StreamWriteOptions:
    """Options for writing the batches of a stream.

    Attributes:
        write: options shared with batches; with ``effectively_once``, each row is stored once.
        has_prefix: whether an option, instead of the query id, determines the producer names.
        sort_by: columns of a unique key by which the rows of a task are sorted; empty to keep the given order.
        plan_decides: whether the query's plan decides if rows are stored exactly once.
        is_demanded: whether the query must fail if exactly-once writes are not possible, instead of storing rows at
            least once.
        warning: reason why rows are stored at least once although the options do not request it, with the remedy; or
            empty.
    """

    write: WriteOptions
    has_prefix: bool = False
    sort_by: tuple[str, ...] = ()
    plan_decides: bool = False
    is_demanded: bool = False
    warning: str = ""

    def prefix(self, query: str) -> str:
        """Return the prefix of producer names; ``query`` is the query id in the checkpoint."""
        return self.write.name_prefix if self.has_prefix else f"spark-{query}"

    def decided(self, why_unrepeatable: str) -> StreamWriteOptions:
        """Return the options with the strongest guarantee that the query's plan allows.

        Args:
            why_unrepeatable: reason why a repeated batch may differ; empty if it cannot.

        Raises:
            InvalidConfig: the plan does not allow effectivelyOnce=true.
        """
        if not self.plan_decides or not why_unrepeatable:
            return self
        if self.is_demanded:
            raise InvalidConfig(
                "effectivelyOnce=true requires a repeated batch to produce the same rows in the same order, which the"
                f" query does not guarantee: {why_unrepeatable}; {_REMEDY}, or omit effectivelyOnce to store rows at"
                " least once"
            )
        return replace(
            self,
            write=replace(self.write, effectively_once=False),
            warning=f"a repeated batch of the query may produce other rows or another order: {why_unrepeatable}; for"
            f" exactly-once writes, {_REMEDY}",
        )


def stream_write_options(options: Mapping[str, str]) -> StreamWriteOptions:
    """Parse the options of a stream's sink.

    Raises:
        InvalidConfig: an option is unknown, missing or invalid; the message names it.
    """
    given = known(options, STREAM_WRITE_OPTIONS)
    is_exact = boolean(given, "effectivelyOnce", True)
    sort_by = tuple(dict.fromkeys(part.strip() for part in given.get("sortby", "").split(",") if part.strip()))
    if "sortby" in given and not sort_by:
        raise InvalidConfig("sortBy is empty: name columns that together are unique, separated by commas")
    is_unshuffled = boolean(given, "unshuffled", False)
    check_order(is_exact=is_exact, is_unshuffled=is_unshuffled, sort_by=sort_by)
    if not given.get("producer.name.prefix", "x"):
        raise InvalidConfig("producer.name.prefix is empty: omit it to use the query id")
    is_demanded = is_exact and ("effectivelyonce" in given or is_unshuffled or bool(sort_by))
    has_addresses = "admin.url" in given and "topic" in given
    if is_demanded and not has_addresses:
        raise InvalidConfig(f"{_ADDRESSES}: set both, or set effectivelyOnce=false to store rows at least once")
    write = common_write_options(given, "spark", effectively_once=is_exact and has_addresses)
    return StreamWriteOptions(
        write=write,
        has_prefix="producer.name.prefix" in given,
        sort_by=sort_by,
        plan_decides=write.effectively_once and not (is_unshuffled or sort_by),
        is_demanded=is_demanded,
        warning=f"{_ADDRESSES}: set both" if is_exact and not has_addresses else "",
    )


def check_order(*, is_exact: bool, is_unshuffled: bool, sort_by: tuple[str, ...]) -> None:
    """Reject contradictory options about the order of rows.

    Args:
        is_exact: whether rows may be stored exactly once.
        is_unshuffled: whether the option ``unshuffled`` is set.
        sort_by: columns of the sort key.

    Raises:
        InvalidConfig: the options contradict each other.
    """
    if not is_exact and (is_unshuffled or sort_by):
        name = "sortBy" if sort_by else "unshuffled"
        raise InvalidConfig(f"effectivelyOnce=false stores rows at least once, in any order: omit {name}")
    if is_unshuffled and sort_by:
        raise InvalidConfig("sortBy orders shuffled rows, so unshuffled has no effect: omit unshuffled")
