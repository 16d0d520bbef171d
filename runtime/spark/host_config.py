"""Settings of Spark functions on a worker, and serialisation of their session settings for the host."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...errors import InvalidConfig
from ...spark.session_config import SessionConfig


@dataclass(frozen=True, kw_only=True)
class SparkConfig:
    """Settings of Spark functions on a worker.

    Attributes:
        data_dir: directory for Spark's files and log.
        master: Spark master, as in `SessionConfig`.
        heap: heap size of the driver's JVM, as for ``-Xmx``.
        driver_host: address at which a cluster's executors can reach this machine.
        settings: Spark settings, which override ours.
        idle_s: seconds after which an idle host is ended; starting one takes a few seconds.
        class_archive: build an archive of the JVM's classes, and start the JVM from it.
        starts_ahead: start the session when the first function is loaded, not with the first run.
        program: starts a host; replaceable in tests.
    """

    data_dir: Path
    master: str = "local[*]"
    heap: str = "1g"
    driver_host: str = "127.0.0.1"
    settings: Mapping[str, str] = field(default_factory=dict)
    idle_s: float = 600.0
    class_archive: bool = True
    starts_ahead: bool = True
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "magnetar.runtime.spark.host")

    def __post_init__(self) -> None:
        if not self.idle_s > 0:
            raise InvalidConfig(f"invalid idle_s {self.idle_s}: must be positive")
        self.session()

    def session(self) -> SessionConfig:
        """Return the settings for the host's session."""
        return SessionConfig(
            directory=self.data_dir / "spark",
            master=self.master,
            app_name="magnetar functions",
            heap=self.heap,
            driver_host=self.driver_host,
            settings=self.settings,
            log_file=self.data_dir / "logs" / "spark.log",
            class_archive=self.class_archive,
            progress=False,  # `functions trigger` shows the progress of each run
        )


def config_to_text(config: SessionConfig) -> str:
    """Serialise a session's settings for `config_from_text`."""
    return json.dumps(asdict(config) | {"settings": dict(config.settings)}, default=str)


def config_from_text(text: str) -> SessionConfig:
    """Parse settings written by `config_to_text`."""
    fields = json.loads(text)
    fields["directory"] = Path(fields["directory"])
    fields["jvm_options"] = tuple(fields["jvm_options"])
    fields["log_file"] = Path(fields["log_file"]) if fields["log_file"] is not None else None
    return SessionConfig(**fields)
