"""``--allowed-hosts``: further host names under which the web ports answer."""

from __future__ import annotations

import click

from ..failure import Failure
from .config_file import host_names


def _read(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    try:
        return host_names(value)
    except ValueError as error:
        raise Failure(f"--allowed-hosts {value!r} is refused: {error}") from error


allowed_hosts_option = click.option(
    "--allowed-hosts",
    metavar="NAME[,NAME]",
    callback=_read,
    help="Further names of this server in requests to its web port (proxies, DNS), and of pages that may ask.",
)
