"""Options of `df.writeStream.format("magnetar").option(...)`, and the guarantee that follows from them.

A repeated task has the same rows in the same order if each task of the plan only maps what it reads, or if the sink
sorts the rows by a unique key: streams cannot be sorted before it, because Spark does not allow that. The options may
say which of the two applies. Otherwise the plan decides (`plan_verdict`): rows are written exactly once if the plan is
known to repeat its batches, else at least once. The options are still verified: a key that is not unique fails the
task, and rows that differ when a batch is run again are detected (`epochs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ....errors import InvalidConfig
from ..option_names import STREAM_WRITE_OPTIONS, boolean, known
from ..options import WriteOptions, common_write_options

_ADDRESSES = "exactly once needs option topic, and option admin.url to have the broker deduplicate it"
_REMEDY = (
    "set sortBy=<columns that together are unique>; or unshuffled=true if the query moves no rows between tasks (no"
    " groupBy, join, distinct, dropDuplicates, repartition) and uses no clock or random numbers"
)


@dataclass(frozen=True, kw_only=True)
class StreamWriteOptions:
    """How the batches of a stream are written.

    Attributes:
        write: options as for a batch; with ``effectively_once`` each row is stored once.
        has_prefix: whether producers are named by an option, not after the query.
        sort_by: columns that together are unique; the rows of a task are sorted by them. Empty for the given order.
        plan_decides: whether the plan of the query decides if rows are stored once.
        is_demanded: whether the query must fail if that is not possible; otherwise rows are stored at least once.
        warning: why rows are stored at least once although the options do not ask for it, and what to do; or empty.
    """

    write: WriteOptions
    has_prefix: bool = False
    sort_by: tuple[str, ...] = ()
    plan_decides: bool = False
    is_demanded: bool = False
    warning: str = ""

    def prefix(self, query: str) -> str:
        """Return the prefix of producer names; ``query`` is the id in the checkpoint."""
        return self.write.name_prefix if self.has_prefix else f"spark-{query}"

    def decided(self, why_unrepeatable: str) -> StreamWriteOptions:
        """Return the options with the guarantee that the query's plan allows.

        Args:
            why_unrepeatable: why a repeated batch may differ; empty if it cannot.

        Raises:
            InvalidConfig: effectivelyOnce=true demands more.
        """
        if not self.plan_decides or not why_unrepeatable:
            return self
        if self.is_demanded:
            raise InvalidConfig(
                f"effectivelyOnce=true needs the same rows in the same order when a batch is run again, which the query"
                f" does not ensure: {why_unrepeatable}; {_REMEDY}; or leave effectivelyOnce out to have rows stored at"
                " least once"
            )
        return replace(
            self,
            write=replace(self.write, effectively_once=False),
            warning=f"the query may make other rows or another order when a batch is run again: {why_unrepeatable};"
            f" for exactly once {_REMEDY}",
        )


def stream_write_options(options: Mapping[str, str]) -> StreamWriteOptions:
    """Parse the options of a stream's sink.

    Raises:
        InvalidConfig: names the option that is unknown, missing or invalid.
    """
    given = known(options, STREAM_WRITE_OPTIONS)
    is_exact = boolean(given, "effectivelyOnce", True)
    sort_by = tuple(dict.fromkeys(part.strip() for part in given.get("sortby", "").split(",") if part.strip()))
    if "sortby" in given and not sort_by:
        raise InvalidConfig("sortBy is empty: name columns that together are unique, separated by commas")
    is_unshuffled = boolean(given, "unshuffled", False)
    check_order(is_exact=is_exact, is_unshuffled=is_unshuffled, sort_by=sort_by)
    if not given.get("producer.name.prefix", "x"):
        raise InvalidConfig("producer.name.prefix is empty; leave it out to have the id of the query")
    is_demanded = is_exact and ("effectivelyonce" in given or is_unshuffled or bool(sort_by))
    has_addresses = "admin.url" in given and "topic" in given
    if is_demanded and not has_addresses:
        raise InvalidConfig(f"{_ADDRESSES}: set both, or effectivelyOnce=false to have rows stored at least once")
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
        is_exact: whether rows may be stored once.
        is_unshuffled: whether the query is declared to move no rows between tasks.
        sort_by: columns of the key.

    Raises:
        InvalidConfig: they contradict each other.
    """
    if not is_exact and (is_unshuffled or sort_by):
        name = "sortBy" if sort_by else "unshuffled"
        raise InvalidConfig(f"effectivelyOnce=false has rows there at least once, in any order; leave {name} out")
    if is_unshuffled and sort_by:
        raise InvalidConfig("sortBy has the rows in order however they were shuffled; leave unshuffled out")
