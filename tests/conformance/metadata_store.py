"""Checks for every metadata store provider; each check covers one guarantee of `metadata/store/store.py`.

`make_store` opens the same store each time it is called. Checks keep to a path of their own, so that they may share
an ensemble. A provider's test runs `check_metadata_store`, or each of `CHECKS` by itself for a better report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from magnetar.errors import BadVersion, ClosedError, InvalidConfig
from magnetar.metadata.store.store import ABSENT, MAX_VALUE_BYTES, Change, MetadataStore

MakeStore = Callable[[], Awaitable[MetadataStore]]


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition with a deadline; watches on a remote store need a round trip."""
    try:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 (the condition is another party's state)
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"did not happen within 30 s: {what}")


async def a_record_is_absent_until_put_and_then_read_back(store: MetadataStore, root: str) -> None:
    assert await store.get(f"{root}/a") is None
    version = await store.put(f"{root}/a", b"one")
    assert version >= 0
    assert await store.get(f"{root}/a") == (b"one", version)


async def versions_grow_with_each_put(store: MetadataStore, root: str) -> None:
    versions = [await store.put(f"{root}/a", b"%d" % n) for n in range(5)]
    assert versions == sorted(set(versions))


async def put_if_version_refuses_another_version_and_changes_nothing(store: MetadataStore, root: str) -> None:
    first = await store.put(f"{root}/a", b"one")
    second = await store.put(f"{root}/a", b"two", first)
    for wrong in (first, second + 1, ABSENT):
        with pytest.raises(BadVersion, match=f"{root}/a"):
            await store.put(f"{root}/a", b"never", wrong)
    assert await store.get(f"{root}/a") == (b"two", second)


async def put_if_absent_creates_once(store: MetadataStore, root: str) -> None:
    results = await asyncio.gather(
        *(store.put(f"{root}/a", b"%d" % n, ABSENT) for n in range(10)), return_exceptions=True
    )
    winners = [n for n, result in enumerate(results) if isinstance(result, int)]
    assert len(winners) == 1
    assert all(isinstance(result, BadVersion) for n, result in enumerate(results) if n not in winners)
    record = await store.get(f"{root}/a")
    assert record is not None
    assert record.value == b"%d" % winners[0]


async def put_with_a_version_refuses_a_record_that_is_gone(store: MetadataStore, root: str) -> None:
    version = await store.put(f"{root}/a", b"one")
    await store.delete(f"{root}/a")
    with pytest.raises(BadVersion):
        await store.put(f"{root}/a", b"two", version)
    assert await store.get(f"{root}/a") is None


async def concurrent_increments_by_compare_and_set_lose_none(store: MetadataStore, root: str) -> None:
    await store.put(f"{root}/n", b"0")

    async def increment() -> None:
        while True:
            record = await store.get(f"{root}/n")
            assert record is not None
            try:
                await store.put(f"{root}/n", b"%d" % (int(record.value) + 1), record.version)
            except BadVersion:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(8)))
    record = await store.get(f"{root}/n")
    assert record is not None
    assert record.value == b"8"


async def delete_removes_a_record_and_says_whether_there_was_one(store: MetadataStore, root: str) -> None:
    await store.put(f"{root}/a", b"one")
    assert await store.delete(f"{root}/a") is True
    assert await store.get(f"{root}/a") is None
    assert await store.delete(f"{root}/a") is False


async def delete_if_version_refuses_another_version(store: MetadataStore, root: str) -> None:
    version = await store.put(f"{root}/a", b"one")
    with pytest.raises(BadVersion):
        await store.delete(f"{root}/a", version + 1)
    assert await store.get(f"{root}/a") == (b"one", version)
    assert await store.delete(f"{root}/a", version) is True
    with pytest.raises(BadVersion):
        await store.delete(f"{root}/a", version)


async def delete_keeps_what_is_below(store: MetadataStore, root: str) -> None:
    await store.put(f"{root}/a", b"parent")
    await store.put(f"{root}/a/b", b"child")
    assert await store.delete(f"{root}/a") is True
    assert await store.get(f"{root}/a") is None
    assert await store.get(f"{root}/a/b") is not None
    assert await store.children(root) == ["a"]
    assert await store.delete(f"{root}/a") is False
    await store.put(f"{root}/a", b"again", ABSENT)
    record = await store.get(f"{root}/a")
    assert record is not None
    assert record.value == b"again"


async def children_are_the_names_directly_below_sorted(store: MetadataStore, root: str) -> None:
    for path in ("b/x", "b/y", "a", "a-b", "a/b/c", "c.d", "a0", "ä%2F"):
        await store.put(f"{root}/{path}", b"v")
    assert await store.children(root) == ["a", "a-b", "a0", "b", "c.d", "ä%2F"]
    assert await store.children(f"{root}/b") == ["x", "y"]
    assert await store.children(f"{root}/a") == ["b"]
    assert await store.children(f"{root}/nothing") == []
    assert root[1:] in await store.children("/")


async def a_path_with_nothing_at_or_below_it_is_no_child(store: MetadataStore, root: str) -> None:
    await store.put(f"{root}/keep", b"v")
    await store.put(f"{root}/a/b/c", b"v")
    assert await store.get(f"{root}/a/b") is None
    await store.delete(f"{root}/a/b/c")
    assert await store.children(root) == ["keep"]


async def a_parent_without_record_can_be_put_as_new(store: MetadataStore, root: str) -> None:
    await store.put(f"{root}/a/b", b"v")
    version = await store.put(f"{root}/a", b"parent", ABSENT)
    assert await store.get(f"{root}/a") == (b"parent", version)


async def a_large_value_is_kept_and_a_larger_or_empty_one_refused(store: MetadataStore, root: str) -> None:
    value = bytes(range(250)) * (MAX_VALUE_BYTES // 250)
    version = await store.put(f"{root}/a", value)
    assert await store.get(f"{root}/a") == (value, version)
    for bad in (b"", bytes(MAX_VALUE_BYTES + 1)):
        with pytest.raises(InvalidConfig, match=f"{len(bad)} bytes"):
            await store.put(f"{root}/a", bad)
    assert await store.get(f"{root}/a") == (value, version)


async def a_malformed_path_is_refused(store: MetadataStore, root: str) -> None:
    for bad in ("", "a", "/", f"{root}/", f"{root}//a", f"{root}/../a", f"{root}/.", f"{root}/\0", f"{root}/a\n",
                f"{root}/\U0001f600", "/zookeeper/a", "/" + "a" * 5000):  # fmt: skip
        with pytest.raises(InvalidConfig, match="metadata path"):
            await store.put(bad, b"v")
        with pytest.raises(InvalidConfig):
            await store.get(bad)


async def many_operations_at_once_all_take_effect(store: MetadataStore, root: str) -> None:
    await asyncio.gather(*(store.put(f"{root}/{n}", b"%d" % n) for n in range(300)))
    records = await asyncio.gather(*(store.get(f"{root}/{n}") for n in range(300)))
    assert [record and record.value for record in records] == [b"%d" % n for n in range(300)]


async def a_watch_sees_changes_at_and_below_its_prefix_only(store: MetadataStore, root: str) -> None:
    seen: list[Change] = []
    watch = store.watch(f"{root}/a", seen.append)
    await store.put(f"{root}/ab", b"v")
    await store.put(f"{root}/a", b"v")
    version = await store.put(f"{root}/a/b", b"v")
    # A store that is read anew after a change may never see what was made and deleted meanwhile.
    await eventually(lambda: Change(f"{root}/a/b", version) in seen, "the record is reported")
    await store.delete(f"{root}/a/b")
    await eventually(lambda: Change(f"{root}/a/b", None) in seen, "the deletion is reported")
    assert {change.path for change in seen} == {f"{root}/a", f"{root}/a/b"}
    watch.close()
    watch.close()


async def a_watch_reports_the_last_of_many_changes_in_order(store: MetadataStore, root: str) -> None:
    seen: list[Change] = []
    watch = store.watch(root, seen.append)
    versions = [await store.put(f"{root}/a", b"%d" % n) for n in range(20)]
    await eventually(lambda: Change(f"{root}/a", versions[-1]) in seen, "the last version is reported")
    reported = [change.version for change in seen]
    assert reported == sorted(reported, key=lambda version: version or 0)
    watch.close()


async def a_refused_put_is_not_reported(store: MetadataStore, root: str) -> None:
    version = await store.put(f"{root}/a", b"v")
    seen: list[Change] = []
    watch = store.watch(root, seen.append)
    with pytest.raises(BadVersion):
        await store.put(f"{root}/a", b"w", version + 7)
    last = await store.put(f"{root}/b", b"v")
    await eventually(lambda: Change(f"{root}/b", last) in seen, "the put after it is reported")
    assert [change.path for change in seen] == [f"{root}/b"]
    watch.close()


async def a_closed_watch_is_silent(store: MetadataStore, root: str) -> None:
    seen: list[Change] = []
    store.watch(root, seen.append).close()
    witness: list[Change] = []
    watch = store.watch(root, witness.append)
    await store.put(f"{root}/a", b"v")
    await eventually(lambda: bool(witness), "the other watch sees it")
    assert seen == []
    watch.close()


async def an_operation_of_a_cancelled_caller_leaves_the_store_usable(store: MetadataStore, root: str) -> None:
    task = asyncio.ensure_future(store.put(f"{root}/a", b"v"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.put(f"{root}/b", b"v")
    assert "b" in await store.children(root)


CHECKS: tuple[Callable[[MetadataStore, str], Awaitable[None]], ...] = (
    a_record_is_absent_until_put_and_then_read_back,
    versions_grow_with_each_put,
    put_if_version_refuses_another_version_and_changes_nothing,
    put_if_absent_creates_once,
    put_with_a_version_refuses_a_record_that_is_gone,
    concurrent_increments_by_compare_and_set_lose_none,
    delete_removes_a_record_and_says_whether_there_was_one,
    delete_if_version_refuses_another_version,
    delete_keeps_what_is_below,
    children_are_the_names_directly_below_sorted,
    a_path_with_nothing_at_or_below_it_is_no_child,
    a_parent_without_record_can_be_put_as_new,
    a_large_value_is_kept_and_a_larger_or_empty_one_refused,
    a_malformed_path_is_refused,
    many_operations_at_once_all_take_effect,
    a_watch_sees_changes_at_and_below_its_prefix_only,
    a_watch_reports_the_last_of_many_changes_in_order,
    a_refused_put_is_not_reported,
    a_closed_watch_is_silent,
    an_operation_of_a_cancelled_caller_leaves_the_store_usable,
)


async def check_survives_reopening(make_store: MakeStore) -> None:
    """Records and versions survive reopening the store; a closed store rejects operations."""
    store = await make_store()
    version = await store.put("/reopened/a", b"one")
    await store.close()
    await store.close()
    with pytest.raises(ClosedError):
        await store.get("/reopened/a")
    store = await make_store()
    try:
        assert await store.get("/reopened/a") == (b"one", version)
        assert await store.put("/reopened/a", b"two", version) > version
    finally:
        await store.close()


async def check_metadata_store(make_store: MakeStore) -> None:
    """Run all checks in sequence."""
    for check in CHECKS:
        store = await make_store()
        try:
            await check(store, f"/{check.__name__}")
        finally:
            await store.close()
    await check_survives_reopening(make_store)
