"""Credentials and TLS of the data source, as planners and tasks use them. No Spark, but Arrow."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from magnetar.client import AsyncClient, ClientConfig
from magnetar.client.producers.outgoing import encode_entry
from magnetar.errors import (
    AuthenticationError,
    ConnectionLost,
    CredentialsUnavailable,
    InvalidConfig,
    MagnetarError,
    TlsFailed,
)
from magnetar.security.authentication.settings import ServerSecurity
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.security.server_tls_settings import ServerTls
from magnetar.spark.session_config import SETTINGS
from magnetar.spark.source import range_reader
from magnetar.spark.source.connection import BlockingConnection, Routes
from magnetar.spark.source.options import read_options, write_options
from magnetar.spark.source.range_reader import RangeReader
from magnetar.spark.source.security_options import SECURITY_OPTIONS
from magnetar.spark.source.topic_metadata import plan_read
from magnetar.spark.source.writer import pinned, write_rows

from tests.client.clusters import OurBroker
from tests.spark.topics import numbered, options_for, values
from tests.support.certificates import Authority, Certificate, server_context
from tests.support.tokens import PROVIDER_TLS, PROVIDER_TOKEN, SECRET, data_url, token
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.task_bench import Bench

pytestmark = pytest.mark.spark

URL = {"service.url": "pulsar+ssl://localhost", "topic": "t"}
CHECK_S = 0.1
LIFE_S = 1


@dataclass
class Site:
    """A broker that asks who connects, by both kinds of port, and its authority."""

    broker: OurBroker
    authority: Authority

    @property
    def tls_url(self) -> str:
        return f"pulsar+ssl://127.0.0.1:{self.broker.service.tls_port}"

    @property
    def trusting(self) -> dict[str, str]:
        return {"tls.trust.certs.file": str(self.authority.file)}

    def fill(self, topic: str, count: int) -> None:
        async def fill() -> None:
            config = ClientConfig(auth_plugin="token", auth_params=token("superuser"))
            async with AsyncClient(self.broker.service_url, config) as client:
                producer = await client.create_producer(topic)
                for payload in numbered(count):
                    producer.send_entry(encode_entry([payload]))
                await producer.flush()

        asyncio.run(fill())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "ca")
    mine = authority.issue("server")
    broker = OurBroker(
        directory,
        broker_tls_port=0,
        security=ServerSecurity(
            enabled=True,
            providers=(PROVIDER_TOKEN, PROVIDER_TLS),
            token_secret_key=data_url(SECRET),
            refresh_check_s=CHECK_S,
        ),
        tls=ServerTls(
            certificate_file=str(mine.file), key_file=str(mine.key_file), trust_certs_file=str(authority.file)
        ),
    )
    yield Site(broker, authority)
    broker.close()


@pytest.fixture
def topic(site: Site) -> str:
    return site.broker.topic()


def bearer(**claims: Any) -> dict[str, str]:
    return {"auth.plugin": "token", "auth.params": f"token:{token('superuser', **claims)}"}


def test_a_token_and_tls_lead_to_the_messages(site: Site, topic: str) -> None:
    site.fill(topic, 5)
    for url, trusting in ((site.broker.service_url, {}), (site.tls_url, site.trusting)):
        assert values(options_for(url, topic, **bearer(), **trusting), 2) == numbered(5)


def test_rows_are_written_with_the_same_options(site: Site, topic: str) -> None:
    given = {"service.url": site.tls_url, "topic": topic} | bearer() | site.trusting
    rows = pa.record_batch({"value": pa.array(numbered(20), pa.binary())})
    write_rows(pinned(write_options(given, "run")), 0, [rows])
    assert values(read_options(given)) == numbered(20)


def test_schemas_are_asked_for_and_registered_with_the_same_options(site: Site, topic: str) -> None:
    from magnetar.spark.source.source import MagnetarSource, TopicWriter
    from pyspark.sql.types import StructType

    given = {"service.url": site.tls_url, "topic": topic} | bearer() | site.trusting
    columns = StructType().add("id", "long")
    writer = MagnetarSource({**given, "outputSchema": "AVRO"}).writer(columns, overwrite=False)
    assert isinstance(writer, TopicWriter)
    write_rows(writer._options, 0, [pa.record_batch({"id": [1, 2]})])
    source = MagnetarSource({**given, "useTopicSchema": "true"})
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    [partition] = reader.partitions()
    assert [batch.column("id").to_pylist() for batch in reader.read(partition)] == [[1, 2]]
    with pytest.raises(AuthenticationError):
        MagnetarSource({"service.url": site.broker.service_url, "topic": topic, "useTopicSchema": "true"}).schema()


def test_a_certificate_says_who_reads(site: Site, topic: str) -> None:
    site.fill(topic, 3)
    mine = site.authority.issue("superuser", [])
    by_options = {"tls.certificate.file": str(mine.file), "tls.key.file": str(mine.key_file), "auth.plugin": "tls"}
    by_params = {"auth.plugin": "tls", "auth.params": f"tlsCertFile:{mine.file},tlsKeyFile:{mine.key_file}"}
    assert values(options_for(site.tls_url, topic, **by_params, **site.trusting)) == numbered(3)
    assert values(options_for(site.tls_url, topic, **(by_params | by_options), **site.trusting)) == numbered(3)


def test_a_broker_that_is_not_trusted_is_not_spoken_to(site: Site, topic: str, tmp_path: Path) -> None:
    site.fill(topic, 1)
    other = Authority(tmp_path)
    for trusting in ({}, {"tls.trust.certs.file": str(other.file)}):
        with pytest.raises(TlsFailed, match=r"rejected the certificate of 127.0.0.1:\d+: "):
            values(options_for(site.tls_url, topic, **bearer(), **trusting))
    insecure = {"tls.allow.insecure.connection": "TRUE"}
    assert values(options_for(site.tls_url, topic, **bearer(), **insecure)) == numbered(1)


def test_the_certificate_has_to_name_the_host(site: Site, topic: str) -> None:
    site.fill(topic, 1)
    other = site.authority.issue("other", ["elsewhere.example"])
    with tls_port(other) as url:
        with pytest.raises(TlsFailed, match=r"rejected the certificate of .*: IP address mismatch"):
            Routes(url, read_options(URL | site.trusting).security).service()
        unnamed = read_options(URL | site.trusting | {"tls.hostname.verification": "false"}).security
        with pytest.raises(
            ConnectionLost, match="closed the connection before the handshake finished; the broker may require a client"
        ):
            Routes(url, unnamed).service()


@contextlib.contextmanager
def tls_port(certificate: Certificate) -> Iterator[str]:
    """A server that ends each connection once TLS is there."""
    context = server_context(certificate)

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)
                    secured.unwrap()
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"pulsar+ssl://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_port_without_tls_is_said(site: Site) -> None:
    url = site.broker.service_url.replace("pulsar://", "pulsar+ssl://")
    with pytest.raises(MagnetarError, match=r"127.0.0.1:\d+.*(does not speak TLS|TLS connection closed)"):
        Routes(url, ClientSecurity(tls_allow_insecure_connection=True)).service()


def test_who_shows_nothing_is_told_which_options_there_are(site: Site, topic: str) -> None:
    with pytest.raises(AuthenticationError, match=r"Failed to authenticate; authentication is required: set options "):
        plan_read(options_for(site.broker.service_url, topic), 1, 1)


def test_a_token_that_ended_is_refused_without_showing_it(site: Site, topic: str) -> None:
    ended = bearer(exp=int(time.time()) - 10)
    with pytest.raises(AuthenticationError, match=r"\(method token\): the credentials may have expired") as failed:
        plan_read(options_for(site.broker.service_url, topic, **ended), 1, 1)
    assert ended["auth.params"].removeprefix("token:") not in str(failed.value)


def test_a_file_that_is_not_there_is_said_with_the_machine(site: Site, topic: str, tmp_path: Path) -> None:
    missing = {"auth.plugin": "token", "auth.params": (tmp_path / "token").as_uri()}
    said = r"on \S+: cannot read token file .*: No such file.*must exist on each machine that runs the driver or"
    with pytest.raises(CredentialsUnavailable, match=said):
        plan_read(options_for(site.broker.service_url, topic, **missing), 1, 1)
    options = write_options({"service.url": site.broker.service_url, "topic": topic} | missing, "run")
    with pytest.raises(CredentialsUnavailable, match=said):
        write_rows(options, 0, [pa.record_batch({"value": pa.array([b"x"], pa.binary())})])
    trusting = {"tls.trust.certs.file": str(tmp_path / "ca.pem")}
    with pytest.raises(CredentialsUnavailable, match=r"on \S+: .*ca.pem.*must exist on each machine"):
        plan_read(options_for(site.tls_url, topic, **bearer(), **trusting), 1, 1)


def test_a_broker_that_asks_again_during_a_read_is_shown_what_the_file_has_now(
    site: Site, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connected: list[str] = []
    connect_to = Routes.connect_to

    def counted(routes: Routes, name: str) -> BlockingConnection:
        connected.append(name)
        return connect_to(routes, name)

    monkeypatch.setattr(Routes, "connect_to", counted)
    site.fill(topic, 3)
    file = tmp_path / "token"
    ends_s = int(time.time()) + 1 + LIFE_S
    file.write_text(token("superuser", exp=ends_s))
    options = options_for(site.broker.service_url, topic, **{"auth.plugin": "token", "auth.params": file.as_uri()})
    [planned] = plan_read(options, 1, 1)
    [span] = planned.spans
    monkeypatch.setattr(range_reader, "_LOOK_AFTER_S", 30.0)
    connected.clear()
    entries = RangeReader(replace(planned, spans=(span._replace(last=5),)), options).entries()
    assert [next(entries).body[-1:] for _ in range(3)] == numbered(3)
    file.write_text(token("superuser"))
    later = threading.Timer(ends_s + 3 * CHECK_S - time.time(), site.fill, (topic, 3))
    later.start()
    assert [entry.body[-1:] for entry in entries] == numbered(3)
    assert time.time() > ends_s + 2 * CHECK_S
    assert connected == [topic]
    assert "rejected Connection(" not in caplog.text
    later.join()


def test_a_connection_whose_token_ends_is_closed_and_a_new_one_refused(site: Site) -> None:
    security = ClientSecurity(auth_plugin="token", auth_params=token("superuser", exp=int(time.time()) + 1 + LIFE_S))
    routes = Routes(site.broker.service_url, security)
    with contextlib.closing(routes.service()) as connection:
        refused = connection.next_frame(time.monotonic() + 10)
        assert refused is not None
        assert refused.command.error.message == "Failed to authenticate"
        with pytest.raises(ConnectionLost, match="closed the connection"):
            connection.next_frame(time.monotonic() + 10)
    with pytest.raises(AuthenticationError, match="may have expired"):
        routes.service()


def test_a_file_that_is_gone_when_the_broker_asks_again_ends_the_connection(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token("superuser", exp=int(time.time()) + 1 + LIFE_S))
    security = ClientSecurity(auth_plugin="token", auth_params=file.as_uri())
    with contextlib.closing(Routes(site.broker.service_url, security).service()) as connection:
        file.unlink()
        with pytest.raises(ConnectionLost, match=r"requested new credentials: cannot read token file "):
            connection.next_frame(time.monotonic() + 10)


def test_a_task_of_a_function_shows_what_its_spec_says(site: Site, tmp_path: Path) -> None:
    from magnetar.spark.jobs.plans import make_tasks

    from tests.spark.task_bench import Bench

    bench = Bench(site.broker, tmp_path, "secured", service_url=site.tls_url)
    site.fill(bench.input, 5)
    allowed = options_for(site.tls_url, bench.input, **bearer(), **site.trusting)
    [task] = make_tasks(plan_read(allowed, 1, 1), cores=1, min_tasks=1, is_ordered=True)
    refused = bench.run(task, is_first=True, spec_json=_with(bench, ClientSecurity(
        tls_trust_certs_file=str(site.authority.file))))  # fmt: skip
    assert refused.failure is not None
    assert "AuthenticationError" in refused.failure.text
    done = bench.run(task, is_first=True, spec_json=_with(bench, allowed.security))
    assert (done.failure, done.messages, done.outputs) == (None, 5, 5)
    outputs = options_for(site.tls_url, bench.output, **bearer(), **site.trusting)
    assert values(outputs) == [value + b"!" for value in numbered(5)]


def _with(bench: Bench, security: ClientSecurity) -> str:
    return replace(bench.spec, security=security).to_json()


def test_the_secrets_are_in_no_repr_and_travel_with_the_options() -> None:
    key = {"crypto.private.key": "data:;base64,c2VjcmV0"}
    reads = read_options({**URL, **key, "auth.plugin": "token", "auth.params": "token:hidden"})
    writes = write_options({**URL, "auth.plugin": "basic", "auth.params": '{"userId":"u","password":"hidden"}'}, "run")
    for options in (reads, writes):
        assert "hidden" not in repr(options)
        assert "c2VjcmV0" not in repr(options)
        assert pickle.loads(pickle.dumps(options)) == options
    assert reads.security == ClientSecurity(auth_plugin="token", auth_params="token:hidden")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"auth.params": "token:hidden"}, r"auth.params requires auth.plugin"),
        ({"auth.plugin": "kerberos"}, r"unknown auth.plugin 'kerberos': expected token, basic, tls, oauth2"),
        ({"auth.plugin": "basic", "auth.params": "hidden"}, r"."),
        ({"tls.key.file": "/k"}, r"tls.key.file requires tls.certificate.file"),
        ({"tls.hostname.verification": "no"}, r"invalid tls.hostname.verification 'no': expected true or false"),
        ({"auth.plugn": "token"}, r"option 'auth.plugn' is unknown; did you mean auth.plugin\?"),
        (
            {"service.url": "pulsar://h", "tls.trust.certs.file": "/a", "tls.hostname.verification": "false"},
            r"^tls.trust.certs.file, tls.hostname.verification requires TLS, which pulsar://h does not use: use",
        ),
        ({"service.url": "pulsar://h", "auth.plugin": "tls", "auth.params": "tlsCertFile:/c,tlsKeyFile:/k"},
         r"authentication method tls requires TLS"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_by_their_names(given: dict[str, str], said: str) -> None:
    for refused in (lambda: read_options({**URL, **given}), lambda: write_options({**URL, **given}, "run")):
        with pytest.raises(InvalidConfig, match=said) as failed:
            refused()
        assert "hidden" not in str(failed.value)


def test_tls_of_the_rest_interface_alone_is_enough_for_its_settings() -> None:
    given = {"service.url": "pulsar://h", "admin.url": "https://h:8443", "topic": "t", "tls.trust.certs.file": "/a"}
    assert read_options(given).security.tls_trust_certs_file == "/a"


def test_every_setting_of_clients_has_its_option() -> None:
    assert [name.replace(".", "_") for name in SECURITY_OPTIONS] == list(vars(ClientSecurity()))


@pytest.mark.parametrize("option", ["auth.params", "crypto.private.key"])
def test_spark_redacts_options_that_hold_a_secret(option: str) -> None:
    assert re.search(SETTINGS["spark.redaction.regex"], option)


def test_plans_and_explanations_show_no_secret(spark: SparkSession, site: Site, topic: str) -> None:
    site.fill(topic, 3)
    given = {"service.url": site.tls_url, "topic": topic} | bearer() | site.trusting
    frame = spark.read.format("magnetar").options(**given).load()
    assert frame.count() == 3
    frame.limit(1).select("value").write.format("magnetar").mode("append").options(**given).save()
    hidden = {"service.url": "pulsar://h", "auth.plugin": "basic", "auth.params": '{"userId":"u","code":"hidden"}'}
    listed = ", ".join(f"'{name}' '{value}'" for name, value in hidden.items())
    view = spark.sql(f"EXPLAIN EXTENDED CREATE TEMPORARY VIEW v USING magnetar OPTIONS ({listed}, topic 't')")
    shown = str(view.collect()) + str(frame._jdf.queryExecution().toString())
    assert "auth.params -> *********(redacted)" in shown
    assert "hidden" not in shown
    assert given["auth.params"].removeprefix("token:") not in shown


def test_the_event_log_holds_no_secret_of_a_read_or_a_write(spark: SparkSession, site: Site, topic: str) -> None:
    site.fill(topic, 3)
    given = {"service.url": site.tls_url, "topic": topic} | bearer() | site.trusting
    frame = spark.read.format("magnetar").options(**given).load()
    frame.select("value").write.format("magnetar").mode("append").options(**given).save()
    directory = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file://"))

    def logged() -> str:
        return "".join(path.read_text() for path in directory.rglob("*") if path.is_file())

    wait_for(lambda: "BatchScan magnetar" in logged() and "SQLExecutionEnd" in logged(), "the plan in the log", 30)
    assert given["auth.params"].removeprefix("token:") not in logged()
