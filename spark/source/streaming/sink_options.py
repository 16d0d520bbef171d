"""What `df.writeStream.format("magnetar").option(...)` takes, and where it may promise that rows are there once.

A task that is run again has the same rows in the same order where nothing moved rows between tasks, or where the sink
sorts them by a unique key: streams cannot be sorted before it, Spark refuses that. Nobody tells a Python sink what the
plan of its query is, so the query says which of the two it is, and is refused if it says nothing. What it says is then
checked: a key that is not unique fails the task, and rows that come again otherwise are noticed (`epochs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....errors import InvalidConfig
from ..option_names import STREAM_WRITE_OPTIONS, boolean, known
from ..options import WriteOptions, common_write_options

_NO_ORDER = (
    "exactly once needs the rows of a batch in the same order when it is run again; give sortBy=<columns that together"
    " are unique>, or unshuffled=true if the query moves no rows between tasks (no groupBy, join, distinct,"
    " dropDuplicates, repartition), or effectivelyOnce=false to have rows there at least once"
)


@dataclass(frozen=True, kw_only=True)
class StreamWriteOptions:
    """How the batches of a stream are written.

    Attributes:
        write: as a batch is; with ``effectively_once`` each row is stored once.
        has_prefix: whether producers are named as the options say, and not after the query.
        sort_by: columns that together are unique; the rows of a task are sorted by them. Empty: in the order in which
            they come.
    """

    write: WriteOptions
    has_prefix: bool = False
    sort_by: tuple[str, ...] = ()

    def prefix(self, query: str) -> str:
        """Return what the names of producers begin with; ``query`` is the id in the checkpoint."""
        return self.write.name_prefix if self.has_prefix else f"spark-{query}"


def stream_write_options(options: Mapping[str, str]) -> StreamWriteOptions:
    """Return the options of a stream's sink.

    Raises:
        InvalidConfig: says which option is unknown, missing or wrong, or that the order of rows is not certain.
    """
    given = known(options, STREAM_WRITE_OPTIONS)
    is_exact = boolean(given, "effectivelyOnce", True)
    sort_by = tuple(dict.fromkeys(part.strip() for part in given.get("sortby", "").split(",") if part.strip()))
    if "sortby" in given and not sort_by:
        raise InvalidConfig("sortBy is empty; give columns that together are unique, with commas between them")
    check_order(is_exact=is_exact, is_unshuffled=boolean(given, "unshuffled", False), sort_by=sort_by)
    if is_exact and ("admin.url" not in given or "topic" not in given):
        raise InvalidConfig(
            "exactly once needs option topic, and option admin.url to have the broker deduplicate it; give both, or"
            " effectivelyOnce=false to have rows there at least once"
        )
    if not given.get("producer.name.prefix", "x"):
        raise InvalidConfig("producer.name.prefix is empty; leave it out to have the id of the query")
    write = common_write_options(given, "spark", effectively_once=is_exact)
    return StreamWriteOptions(write=write, has_prefix="producer.name.prefix" in given, sort_by=sort_by)


def check_order(*, is_exact: bool, is_unshuffled: bool, sort_by: tuple[str, ...]) -> None:
    """Refuse what is said of the order of rows, unless it makes one promise and no two.

    Args:
        is_exact: whether each row is to be there once.
        is_unshuffled: whether the query says that it moves no rows between tasks.
        sort_by: the columns of the key.

    Raises:
        InvalidConfig: it does not.
    """
    if not is_exact and (is_unshuffled or sort_by):
        name = "sortBy" if sort_by else "unshuffled"
        raise InvalidConfig(f"effectivelyOnce=false has rows there at least once, in any order; leave {name} out")
    if is_unshuffled and sort_by:
        raise InvalidConfig("sortBy has the rows in order however they were shuffled; leave unshuffled out")
    if is_exact and not (is_unshuffled or sort_by):
        raise InvalidConfig(_NO_ORDER)
