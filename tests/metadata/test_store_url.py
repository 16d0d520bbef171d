"""Which store a URL means, and what is said about one that means none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.errors import InvalidConfig
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.metadata.store.url import StoreUrl, open_store, parse_store_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", StoreUrl("", "")),
        ("sqlite:", StoreUrl("", "")),
        ("sqlite:/var/lib/m.db", StoreUrl("", "/var/lib/m.db")),
        ("zk:localhost:2181/magnetar", StoreUrl("localhost:2181", "/magnetar")),
        ("zk:a:1,b.c-d:65535,e/x/y/", StoreUrl("a:1,b.c-d:65535,e:2181", "/x/y")),
        ("zk:[::1]:2182", StoreUrl("[::1]:2182", "/")),
        ("zk:10.0.0.1/", StoreUrl("10.0.0.1:2181", "/")),
    ],
)
def test_url_is_read(url: str, expected: StoreUrl) -> None:
    assert parse_store_url(url) == expected


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:2181", "unknown metadata store in"),
        ("etcd:localhost:2379", "unknown metadata store in"),
        ("zk:", "'' is not host:port"),
        ("zk://localhost:2181/m", "'' is not host:port"),
        ("zk:a:2181,", "'' is not host:port"),
        ("zk:a:0", "'a:0' is not host:port"),
        ("zk:a:70000", "'a:70000' is not host:port"),
        ("zk:a b:2181", "'a b:2181' is not host:port"),
        ("zk:a:2181;b:2181", "is not host:port"),
        ("zk:a:2181/x//y", "invalid metadata path '/x//y'"),
        ("zk:a:2181/../y", "invalid metadata path"),
        ("zk:a:2181/zookeeper", "not below /zookeeper"),
    ],
)
def test_malformed_url_is_refused_and_quoted(url: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_store_url(url)
    assert words in str(caught.value)
    assert repr(url) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite:{directory}/named.db"])
def test_sqlite_is_opened_in_the_named_file_or_the_default_one(url: str, tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(url.format(directory=tmp_path), tmp_path / "default.db", 1)
        assert isinstance(store, SqliteStore)
        await store.close()

    asyncio.run(check())
    assert [file.name for file in tmp_path.iterdir()] == ["named.db" if "named" in url else "default.db"]
