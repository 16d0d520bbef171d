"""The example from PostgreSQL to another database, by the commands of its README, while everything is killed."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import magnetar
import psutil
import pytest

from tests.connectors.servers.postgres import Postgres
from tests.support.command import Answer, call
from tests.support.servers import Server, descendants, running
from tests.support.waiting import wait_for

psycopg = pytest.importorskip("psycopg")
pytestmark = [pytest.mark.slow, pytest.mark.connectors]

EXAMPLE = Path(magnetar.__file__).parent / "examples" / "pipelines" / "postgres_to_database"
TABLE = "CREATE TABLE orders (id integer PRIMARY KEY, customer text, articles integer, price numeric(10, 2))"
KILLS = int(os.environ.get("MAGNETAR_CONNECTOR_KILLS", "40"))
"""Of the round in `make test-crash`."""
INSTANCES = ("orders-changes", "total", "totals")


def commands() -> list[list[str]]:
    text = (EXAMPLE / "README.md").read_text().replace("\\\n", " ")
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert TABLE in text
    return [shlex.split(line) for line in block.splitlines()]


def title(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


class Shop(threading.Thread):
    """Changes orders at random, and tries again while the database is away."""

    def __init__(self, postgres: Postgres, seed: int) -> None:
        super().__init__()
        self.done = 0
        self.error: BaseException | None = None
        self._conninfo = postgres.conninfo.replace("dbname=postgres", "dbname=shop")
        self._rng = random.Random(seed)
        self._is_over = threading.Event()

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                try:
                    with psycopg.connect(self._conninfo, autocommit=True) as connection:
                        while not self._is_over.is_set():
                            self._change(connection)
                            self._is_over.wait(0.002)
                except psycopg.OperationalError:  # killed
                    self._is_over.wait(0.05)
        except BaseException as error:  # noqa: BLE001  shown by the test
            self.error = error

    def _change(self, connection: Any) -> None:
        rng = self._rng
        with connection.transaction():
            for _ in range(rng.choice((1, 1, 1, 30))):
                number = rng.randrange(500)
                values = (
                    number,
                    f"Kundin {rng.randrange(9)} 🙂",
                    rng.randrange(100),
                    f"{rng.randrange(10**6) / 100:.2f}",
                )
                match rng.randrange(6):
                    case 0:
                        connection.execute("DELETE FROM orders WHERE id = %s", values[:1])
                    case 1:  # another key
                        connection.execute(
                            "UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM orders WHERE id = %s)",
                            (number + 1, number, number + 1),
                        )
                    case _:
                        connection.execute(
                            "INSERT INTO orders VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE"
                            " SET customer = excluded.customer, articles = excluded.articles, price = excluded.price",
                            values,
                        )
        self.done += 1

    def end(self) -> None:
        """Let it come to its end."""
        self._is_over.set()
        self.join(30)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


class Pipeline:
    """The three parts of the example on a standalone, and what kills them."""

    def __init__(self, postgres: Postgres, server: Server) -> None:
        self.postgres = postgres
        self.server = server

    def command(self, *arguments: str) -> Answer:
        return call(*arguments, admin_url=self.server.web_url, service_url=self.server.service_url)

    def kill_instance(self, rng: random.Random) -> None:
        name = f"magnetar instance public/default/{rng.choice(INSTANCES)}:0"
        for process in descendants(self.server.pid):
            if title(process).startswith(name):
                os.kill(process.pid, signal.SIGKILL)

    def kill_worker(self, rng: random.Random) -> None:
        for process in psutil.Process(self.server.pid).children():
            if " worker " in f"{title(process)} ":
                os.kill(process.pid, signal.SIGKILL)

    def kill_database(self, rng: random.Random) -> None:
        before = self.postgres.pid
        self.postgres.kill()
        self.postgres.start()
        assert self.postgres.pid != before

    def rows(self, database: str, query: str) -> list[tuple[Any, ...]]:
        conninfo = self.postgres.conninfo.replace("dbname=postgres", f"dbname={database}")
        with psycopg.connect(conninfo) as connection:
            cursor = connection.execute(query)
            return list(cursor.fetchall()) if cursor.description else []

    def status(self) -> str:
        lines = []
        for kind, name in (("sources", "orders-changes"), ("functions", "total"), ("sinks", "totals")):
            lines.append(f"{kind} {name}: {self.command(kind, 'status', '--name', name).out}")
        return "\n".join(lines)


def run_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: Callable[[random.Random], list[str]], timeout_s: float
) -> None:
    seed = int(os.environ.get("MAGNETAR_TEST_SEED", "0")) or random.randrange(1, 1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    files = tmp_path / "example"
    files.mkdir()
    with Postgres.running() as postgres, running("standalone", tmp_path / "server") as server:
        for file in EXAMPLE.iterdir():
            (files / file.name).write_text(file.read_text().replace("5432", str(postgres.port)))
        monkeypatch.chdir(files)
        pipeline = Pipeline(postgres, server)
        postgres.execute("CREATE DATABASE shop", "CREATE DATABASE warehouse")
        pipeline.rows("shop", TABLE)
        pipeline.rows("shop", "INSERT INTO orders SELECT g, 'first', g, 1.25 FROM generate_series(1, 400) g")
        shop = Shop(postgres, seed)
        shop.start()
        for program, *arguments in commands():
            assert program == "magnetar"
            pipeline.command(*arguments).ok()
        for what in kills(rng):
            time.sleep(rng.uniform(0.2, 2.5))  # the moment is the test's chance, nothing is waited for
            print(f"{shop.done} changes, then kill {what}", flush=True)
            getattr(pipeline, f"kill_{what}")(rng)
        before = shop.done
        wait_for(lambda: shop.done > before + 100, "changes behind the last kill")
        shop.end()
        print(f"{shop.done} changes")
        expected = pipeline.rows(
            "shop", "SELECT id, customer, (articles * price)::numeric(12, 2) FROM orders ORDER BY id"
        )
        assert expected

        def is_the_same() -> bool:
            return pipeline.rows("warehouse", "SELECT id, customer, total FROM totals ORDER BY id") == expected

        try:
            wait_for(is_the_same, "the same rows", timeout_s)
        except AssertionError:
            found = pipeline.rows("warehouse", "SELECT id, customer, total FROM totals ORDER BY id")
            others = sorted(set(found) ^ set(expected))
            raise AssertionError(f"seed {seed}: {len(others)} differ: {others[:6]}\n{pipeline.status()}") from None
        ((slots,),) = pipeline.rows("shop", "SELECT count(*) FROM pg_replication_slots WHERE NOT temporary")
        assert slots == 1


@pytest.mark.timeout(240)
def test_all_rows_are_there_as_they_are_across_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kills(rng: random.Random) -> list[str]:
        order = ["instance", "worker", "database", "instance"]
        rng.shuffle(order)
        return order

    run_example(tmp_path, monkeypatch, kills, 90)


@pytest.mark.crash
@pytest.mark.timeout(1500)
def test_all_rows_are_there_as_they_are_across_many_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kills(rng: random.Random) -> list[str]:
        return [rng.choice(("instance", "instance", "worker", "database")) for _ in range(KILLS)]

    run_example(tmp_path, monkeypatch, kills, 300)
