"""``magnetar broker``: runs a broker alone."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .config_file import BROKER_KEYS, advertised_address_option, allowed_hosts_option
from .data_directory import BROKER_NAMES, DataDirectory
from .exposure import check_exposure, host_in_file, insecure_option, is_guarded, is_loopback, tell_exposure
from .lifetime import announce, check_port, die_with_parent, importing, log_to_stderr, run
from .server_file import read_server_file

if TYPE_CHECKING:
    from ...broker.config import BrokerConfig
    from ...broker.storage.config import StorageConfig


def broker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a broker to a command."""
    for option in (
        click.option(
            "--ready-file", metavar="FILE", help="Write the addresses to this file as JSON when ready (-: stdout)."
        ),
        click.option(
            "--salvage",
            is_flag=True,
            help="Recover journal entries of topics that were never created, as topics with generated names; only"
            " needed if the broker refuses to start because of them.",
        ),
        click.option("--wipe-data", is_flag=True, help="Start empty: delete data of earlier runs in --data-dir."),
        click.option(
            "--config",
            "config_file",
            metavar="FILE",
            help="Pulsar's .conf file, or YAML with its keys; flags override it.",
        ),
        click.option("--host", help="Address to listen on (default: 127.0.0.1)."),
        insecure_option,
        advertised_address_option("advertised_address"),
        allowed_hosts_option,
        click.option("--web-port", type=int, help="Port of the REST interface (default: 8080, 0: a free one)."),
        click.option("--broker-port", type=int, help="Port of the binary protocol (default: 6650, 0: a free one)."),
        click.option("--data-dir", default="data", show_default=True, metavar="DIR", help="Directory for all data."),
    ):
        command = option(command)
    return command


@importing()
def broker_configs(flags: dict[str, Any], in_file: dict[str, dict[str, Any]]) -> tuple[BrokerConfig, StorageConfig]:
    """Return the settings from flags and file; flags take precedence."""
    from ...broker.config import BrokerConfig
    from ...broker.storage.config import StorageConfig
    from ...security.authentication.settings import ServerSecurity
    from ...security.authorization.settings import AuthorizationSettings
    from ...security.credentials.client_security import ClientSecurity
    from ...security.server_tls_settings import ServerTls

    namespace = in_file["worker"].get("functions_namespace", "public/functions")
    locks_topic = f"persistent://{namespace}/instances"
    fields = ("host", "advertised_address", "broker_port", "web_port", "allowed_hosts")
    given = {field: flags[field] for field in fields if flags.get(field) is not None}
    if "host" in in_file["broker"] and "host" not in given:
        is_open = flags["insecure"] or is_guarded(in_file["security"], in_file["authorization"])
        given["host"] = host_in_file(in_file["broker"]["host"], is_open=is_open)
    config = BrokerConfig(
        **{**in_file["broker"], **given},
        data_dir=Path(flags["data_dir"]),
        tls=ServerTls(**in_file["tls"]),
        security=ServerSecurity(**in_file["security"]),
        authorization=AuthorizationSettings(**in_file["authorization"], locks_topic=locks_topic),
        client_security=ClientSecurity(**in_file["client"]),
    )
    return config, dataclasses.replace(StorageConfig(salvage=flags["salvage"]), **in_file["storage"])


def check_hosts(config: BrokerConfig, *, is_open: bool) -> str:
    """Reject listen addresses reachable from other machines, unless allowed; return the most exposed address."""
    hosts = dict.fromkeys((config.host, *(one.host for one in config.bind_addresses)))
    for host in hosts:
        check_exposure(host, is_open)
    return next((host for host in hosts if not is_loopback(host)), config.host)


def open_directory(
    config: BrokerConfig, *, wipe: bool, more_names: tuple[str, ...] = (), way_to: str = ""
) -> DataDirectory:
    """Check the data directory and ports, then lock the directory and optionally empty it.

    Args:
        config: the broker's configuration.
        wipe: whether to delete data of earlier runs.
        more_names: names of entries in it that do not belong to the broker.
        way_to: entry in it that other users may access, empty for none; access to all others is removed.
    """
    DataDirectory.check_free(config.data_dir)
    check_port(config.host, config.broker_port, "--broker-port")
    check_port(config.host, config.web_port, "--web-port")
    for one in config.bind_addresses:
        check_port(one.host, one.port, f"bindAddresses {one}")
    for port, name in ((config.broker_tls_port, "brokerServicePortTls"), (config.web_tls_port, "webServicePortTls")):
        if port is not None:
            check_port(config.host, port, name)
    directory = DataDirectory.open(config.data_dir, is_passage=bool(way_to))
    if wipe:
        directory.wipe(BROKER_NAMES + more_names)
    if way_to:
        directory.close_all_but(way_to)
    return directory


@click.command()
@broker_options
def broker(config_file: str | None, wipe_data: bool, insecure: bool, ready_file: str | None, **flags: Any) -> None:
    """Run a broker alone; workers connect to it with --service-url and --admin-url."""
    die_with_parent()
    log_to_stderr("broker")
    in_file = read_server_file(config_file, BROKER_KEYS, "broker")
    config, storage_config = broker_configs({**flags, "insecure": insecure}, in_file)
    guarded = is_guarded(in_file["security"], in_file["authorization"])
    most_open = check_hosts(config, is_open=insecure or guarded)
    directory = open_directory(config, wipe=wipe_data)
    from .broker_process import BrokerProcess

    async def serve(stop: asyncio.Event) -> None:
        process = BrokerProcess(config, storage_config, directory)
        try:
            await process.start(lambda: None)
            tell_exposure(most_open, is_guarded=guarded)
            announce({**process.addresses, "pid": os.getpid()}, ready_file)
            await stop.wait()
        finally:
            await process.stop()

    run(serve)
