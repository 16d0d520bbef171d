"""Packages: taken in, kept in topics, fetched once, and refused when something is wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import stat
import zipfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from magnetar.errors import PackageError
from magnetar.metadata import packages
from magnetar.metadata.packages import NAMED_S, PART_BYTES, PackageStore, Upload
from magnetar.metadata.packages_extract import extract, module_root

Message = tuple[bytes, Mapping[str, str]]


class MemoryTopics:
    """Topics in memory; sending may fail after some parts."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Message]] = {}
        self.sends_before_failure = -1
        self.reads = 0
        self.looks = 0

    @asynccontextmanager
    async def write(self, package_id: str) -> AsyncIterator[packages.PartWriter]:
        topic = self.topics.setdefault(package_id, [])

        async def send(payload: bytes, properties: Mapping[str, str]) -> None:
            if self.sends_before_failure == 0:
                raise OSError("the broker is gone")
            self.sends_before_failure -= 1
            topic.append((payload, properties))

        yield send

    async def read(self, package_id: str) -> AsyncIterator[Message]:
        self.reads += 1
        for message in list(self.topics.get(package_id, [])):
            yield message

    async def last_properties(self, package_id: str) -> Mapping[str, str] | None:
        self.looks += 1
        topic = self.topics.get(package_id)
        return topic[-1][1] if topic else None


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def new_store(directory: Path, topics: MemoryTopics | None = None) -> PackageStore:
    store = PackageStore(directory, topics or MemoryTopics())
    store.prepare()
    return store


async def kept(store: PackageStore, content: bytes, name: str = "f.py") -> Upload:
    upload = await store.receive(chunks(content))
    await store.keep(upload, name)
    await store.discard(upload)
    return upload


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".py", text)
    return buffer.getvalue()


@pytest.mark.parametrize("size", [1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
async def test_a_package_of_any_size_comes_back_on_another_machine(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    topics = MemoryTopics()
    upload = await kept(new_store(tmp_path / "a", topics), content)
    assert upload.package_id == hashlib.sha256(content).hexdigest()
    assert [len(payload) for payload, _ in topics.topics[upload.package_id]] == [
        min(PART_BYTES, size - begin) for begin in range(0, size, PART_BYTES)
    ]
    fetched = await new_store(tmp_path / "b", topics).fetch(upload.package_id, "f.py")
    assert fetched.name == "f.py"
    assert fetched.read_bytes() == content


async def test_a_package_is_sent_once_and_fetched_once(tmp_path: Path) -> None:
    topics = MemoryTopics()
    store = new_store(tmp_path / "a", topics)
    upload = await kept(store, b"x = 1")
    await kept(store, b"x = 1")
    assert len(topics.topics[upload.package_id]) == 1
    other = new_store(tmp_path / "b", topics)
    await asyncio.gather(*(other.fetch(upload.package_id, "f.py") for _ in range(5)))
    assert topics.reads == 1


async def test_functions_of_one_package_look_at_its_topic_once_in_a_while(tmp_path: Path) -> None:
    topics, now_s = MemoryTopics(), [0.0]
    store = PackageStore(tmp_path, topics, lambda: now_s[0])
    store.prepare()
    upload = await store.receive(chunks(b"x = 1"))
    for _ in range(10):
        await store.keep(upload, "f.py")
        await store.keep(upload, "f.py", is_named=True)
    assert topics.looks == 2
    now_s[0] = NAMED_S
    topics.topics.clear()  # by somebody else
    await store.keep(upload, "f.py")
    assert len(topics.topics[upload.package_id]) == 1


async def test_a_package_without_a_name_is_looked_at_each_time(tmp_path: Path) -> None:
    topics = MemoryTopics()
    store = new_store(tmp_path, topics)
    upload = await store.receive(chunks(b"x = 1"))
    await store.keep(upload, "f.py")
    topics.topics.clear()  # the cleanup: it had been without a name for an hour
    await store.keep(upload, "f.py", is_named=True)
    assert len(topics.topics[upload.package_id]) == 1


async def test_the_same_content_under_two_names_is_there_under_both(tmp_path: Path) -> None:
    topics = MemoryTopics()
    upload = await kept(new_store(tmp_path / "a", topics), b"x = 1")
    other = new_store(tmp_path / "b", topics)
    paths = [await other.fetch(upload.package_id, name) for name in ("f.py", "g.py")]
    assert [path.name for path in paths] == ["f.py", "g.py"]
    assert {path.read_bytes() for path in paths} == {b"x = 1"}


async def test_an_upload_that_broke_off_is_completed_by_the_next(tmp_path: Path) -> None:
    topics = MemoryTopics()
    store = new_store(tmp_path / "a", topics)
    content = os.urandom(3 * PART_BYTES)
    topics.sends_before_failure = 2
    upload = await store.receive(chunks(content))
    with pytest.raises(OSError, match="the broker is gone"):
        await store.keep(upload, "f.py")
    other = new_store(tmp_path / "b", topics)
    with pytest.raises(PackageError, match="is incomplete: 2 of 3 parts are stored"):
        await other.fetch(upload.package_id, "f.py")
    topics.sends_before_failure = -1
    await store.keep(upload, "f.py")
    assert (await other.fetch(upload.package_id, "f.py")).read_bytes() == content


async def test_a_topic_with_another_content_is_not_believed(tmp_path: Path) -> None:
    topics = MemoryTopics()
    package_id = hashlib.sha256(b"the right one").hexdigest()
    topics.topics[package_id] = [(b"the wrong one", {"index": "0", "total": "1"})]
    store = new_store(tmp_path, topics)
    with pytest.raises(PackageError, match="is damaged, as its content hash does not match"):
        await store.fetch(package_id, "f.py")
    assert store.local_ids() == []


@pytest.mark.parametrize(
    "properties", [{}, {"index": "1", "total": "1"}, {"index": "-1", "total": "1"}, {"index": "0", "total": "999999"}]
)
async def test_a_message_that_is_no_part_is_refused(tmp_path: Path, properties: dict[str, str]) -> None:
    topics = MemoryTopics()
    topics.topics["a" * 64] = [(b"x", properties)]
    with pytest.raises(PackageError, match="contains a message that is not a package part"):
        await new_store(tmp_path, topics).fetch("a" * 64, "f.py")


async def test_nothing_is_left_after_an_upload_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path)
    with pytest.raises(PackageError, match="the package is empty"):
        await store.receive(chunks())
    monkeypatch.setattr(packages, "MAX_PACKAGE_BYTES", 2 * PART_BYTES)
    with pytest.raises(PackageError, match="the package is larger than 2 MiB"):
        await store.receive(chunks(*[b"x" * PART_BYTES] * 3))
    upload = await store.receive(chunks(b"no zip"))
    with pytest.raises(PackageError, match=r"package f\.zip is not a readable zip file"):
        await store.unpack(upload, "f.zip")
    await store.discard(upload)
    assert store.local_ids() == []
    assert list((tmp_path / ".incoming").iterdir()) == []


async def test_nothing_is_left_of_an_upload_that_is_cancelled_at_once(tmp_path: Path) -> None:
    """A thread that opens the file does not end with the wait for it, and would make it again."""
    store = new_store(tmp_path)
    for _ in range(20):
        receiving = asyncio.create_task(store.receive(chunks(b"x" * PART_BYTES)))  # a small one never waits
        await asyncio.sleep(0)
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for its threads
    assert list((tmp_path / ".incoming").iterdir()) == []


async def test_a_removed_package_is_fetched_again(tmp_path: Path) -> None:
    topics = MemoryTopics()
    store = new_store(tmp_path, topics)
    upload = await kept(store, zipped(m="x = 1"), "f.zip")
    assert (await store.fetch(upload.package_id, "f.zip") / "m.py").is_file()
    store.remove_local(upload.package_id)
    assert store.local_ids() == []
    assert (await store.fetch(upload.package_id, "f.zip") / "m.py").is_file()


@pytest.mark.parametrize("first", ["f.py", "f.zip"])
async def test_one_content_as_a_module_and_as_an_archive(tmp_path: Path, first: str) -> None:
    """A worker that knows it as the one must not take it for the other: the next worker could not."""
    store = new_store(tmp_path)
    content = zipped(f="x = 1")
    for name in (first, *{"f.py", "f.zip"}.difference((first,))):
        upload = await store.receive(chunks(content))
        place = await store.unpack(upload, name)
        await store.discard(upload)
        if name == "f.py":
            assert place.read_bytes() == content
        else:
            assert [file.read_text() for file in place.iterdir()] == ["x = 1"]
    assert store.local_ids() == [upload.package_id]
    store.remove_local(upload.package_id)
    assert store.local_ids() == []
    assert os.listdir(tmp_path) == [".incoming"]


async def test_a_module_is_no_archive_although_it_is_there(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    upload = await store.receive(chunks(b"x = 1"))
    await store.unpack(upload, "f.py")
    with pytest.raises(PackageError, match=r"package f\.zip is not a readable zip file"):
        await store.unpack(upload, "f.zip")
    await store.discard(upload)


def test_what_a_crash_left_half_done_is_removed_at_the_start(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    (tmp_path / ".incoming" / "half").mkdir()
    store.prepare()
    assert list((tmp_path / ".incoming").iterdir()) == []


# -- archives ------------------------------------------------------------------------------------------------------


def archive_with(tmp_path: Path, fill: Callable[[zipfile.ZipFile], None]) -> Path:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        fill(archive)
    return path


def link(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("link.py")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(entry, "/etc/passwd")


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        (lambda archive: archive.writestr("../evil.py", "x"), "which is outside its directory"),
        (lambda archive: archive.writestr("a/../../evil.py", "x"), "which is outside its directory"),
        (lambda archive: archive.writestr("/evil.py", "x"), "which is outside its directory"),
        (lambda archive: archive.writestr("..\\evil.py", "x"), "which is outside its directory"),
        (lambda archive: archive.writestr("C:\\evil.py", "x"), "which is outside its directory"),
        (link, r"contains a symbolic link \('link\.py'\)"),
        (lambda archive: None, "contains no files"),
        (lambda archive: archive.writestr("x" * 300, "x"), "name of 300 bytes"),
        (lambda archive: archive.writestr("only/", ""), "contains no files"),
        (lambda archive: [archive.writestr(name, "x") for name in ("a", "a/b")], "as both a file and a directory"),
    ],
)
def test_an_archive_that_is_up_to_something_is_refused(
    tmp_path: Path, fill: Callable[[zipfile.ZipFile], None], reason: str
) -> None:
    with pytest.raises(PackageError, match=reason):
        extract(archive_with(tmp_path, fill), tmp_path / "out", "a.zip")
    assert not (tmp_path / "evil.py").exists()


def test_a_bomb_stops_at_the_limit_whatever_its_directory_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive_with(tmp_path, lambda archive: archive.writestr("big", b"\0" * 5_000_000))
    monkeypatch.setattr("magnetar.metadata.packages_extract.MAX_EXTRACTED_BYTES", 1_000_000)
    with pytest.raises(PackageError, match="extracts to 5000000 bytes: the maximum is 1000000"):
        extract(path, tmp_path / "out", "a.zip")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_archive_is_refused_or_extracts_inside(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(zipped(m="x = 1" * 50, n__o="y = 2"))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.zip"
    path.write_bytes(content)
    target = tmp_path / f"out-{len(list(tmp_path.iterdir()))}-{os.urandom(4).hex()}"
    before = set(tmp_path.parent.iterdir())
    with contextlib.suppress(PackageError):
        extract(path, target, "a.zip")
    assert set(tmp_path.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("files", "root"),
    [
        ({"m": ""}, "."),
        ({"src__m": ""}, "src"),
        ({"name__src__m": "", "name__deps__x": ""}, "name/src"),
        ({"name__m": ""}, "."),
        ({"a__src__m": "", "b": ""}, "."),
    ],
)
def test_modules_lie_where_pulsars_archives_have_them(tmp_path: Path, files: dict[str, str], root: str) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(zipped(**files))
    extract(path, tmp_path / "out", "a.zip")
    assert module_root(tmp_path / "out") == tmp_path / "out" / root
