"""A Spark function whose plan is in a state store with TLS, beside a broker without."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magnetar.errors import StateStoreUnavailable
from magnetar.instance.identity import table_of
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.security.server_tls_settings import ServerTls
from magnetar.spark.jobs import retries
from magnetar.spark.jobs.function_run import SparkFunction
from magnetar.state.access import TableKey, with_token
from magnetar.state.client import TableClient
from magnetar.state.server import TableServer

from tests.spark.functions import Lab
from tests.spark.topics import numbered
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from magnetar.spark.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

KEY = TableKey(b"k" * 32)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def store(authority: Authority, tmp_path: Path) -> Iterator[TableServer]:
    certificate = authority.issue("store")
    tls = ServerTls(certificate_file=str(certificate.file), key_file=str(certificate.key_file))
    (tmp_path / "state").mkdir()
    server = TableServer.start(tmp_path / "state", key=KEY, tls=tls)
    yield server
    server.stop()


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "of another authority"])
def test_plan_is_kept_in_a_state_store_that_is_trusted(
    is_trusted: bool,
    monkeypatch: pytest.MonkeyPatch,
    authority: Authority,
    store: TableServer,
    session: Session,
    lab: Lab,
    tmp_path: Path,
) -> None:
    lab.fill([numbered(20)])
    made = lab.function("def process(value):\n    return str(value) + '!'\n")
    table = table_of(made.spec.metadata)
    trusted = authority if is_trusted else Authority(tmp_path / "other", "Other CA")
    security = ClientSecurity(tls_trust_certs_file=str(trusted.file))
    spec = dataclasses.replace(made.spec, state_url=with_token(store.url, KEY.table_token(table)), security=security)
    if not is_trusted:
        monkeypatch.setattr(retries, "RETRY_DEADLINE_S", 0.5)
        with pytest.raises(StateStoreUnavailable, match="brokerClientTrustCertsFilePath") as caught:
            SparkFunction(spec, lambda: session, None)
        assert KEY.table_token(table) not in str(caught.value)
        return
    end = lab.run(SparkFunction(spec, lambda: session, None))
    assert (end.stage, end.error) == ("done", ""), end
    assert sorted(lab.outputs()) == sorted(row + b"!" for row in numbered(20))
    with closing(TableClient(with_token(store.url, KEY.full_token()), security)) as tables:
        assert table in tables.tables()
