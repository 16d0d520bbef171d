"""``magnetar functions localrun``: runs a function in the foreground, without a worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from ..config_flags import QuietOption
from ..failure import Failure
from ..local_run import local_run_options, run_in_foreground, take_surroundings
from ..reach import check_broker
from ..reload import run_reloading
from ..settings import current
from .target import function_options, target_options

_EXAMPLE = """\b
magnetar functions localrun --py exclamation.py --classname exclamation.process \\
    --inputs in --output out --reload"""


@click.command("localrun", epilog=_EXAMPLE)
@target_options
@function_options
@local_run_options
@click.option(
    "--web-service-url", cls=QuietOption, metavar="URL",
    help="Address of the broker's REST interface (default: the global --admin-url).",
)  # fmt: skip
@click.option(
    "--instance-id-offset", "--instanceIdOffset", "instance_id_offset", cls=QuietOption, default=0,
    type=click.IntRange(0, 2**31 - 2), help="Number of the first instance.",
)  # fmt: skip
@click.option("--reload", "reloads", is_flag=True, help="Restart whenever a code or config file is saved.")
@click.pass_context
def localrun(
    ctx: click.Context,
    /,
    instance_id_offset: int,
    reloads: bool,
    **given: Any,
) -> int:
    """Run a function on this machine, in the foreground, without a worker.

    A single instance (without --runtime process) runs in this process: its output goes to the terminal, and
    breakpoint() works.
    """
    from ..local_surroundings import connected
    from .functions import prepare  # imported here to avoid an import cycle
    from .local import code_of, local_function  # imports the worker's libraries

    surroundings = take_surroundings(given, current(ctx))
    config_file = given["config_file"]

    def prepared() -> dict[str, Any]:
        config = prepare(dict(given))
        if (runtime := config.get("runtimeEnv")) is not None:  # Pulsar's tools write it in upper case
            config["runtimeEnv"] = str(runtime).lower()
        return config

    def run() -> int:
        local = local_function(prepared(), surroundings, instance_id_offset)
        details = local.details
        what = f"function {details.tenant}/{details.namespace}/{details.name}"
        return run_in_foreground(connected(local), what, surroundings.metrics_port)

    if not reloads:
        return run()
    watched = [code_of(prepared()), *([Path(config_file)] if config_file else [])]
    missing = next((path for path in watched if not path.exists()), None)
    if missing is not None:
        raise Failure(f"cannot watch {missing}: it does not exist")
    urls = surroundings.service_url, surroundings.admin_url
    asyncio.run(check_broker(*urls, surroundings.security, "--broker-service-url"))
    return run_reloading(run, watched)
