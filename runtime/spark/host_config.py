"""How Spark functions run on a worker, and the settings of its session as text, on the way to the host."""

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
    """How Spark functions run on a worker.

    Attributes:
        data_dir: Spark's files and log are kept below.
        master: as `SessionConfig` takes it.
        heap: of the driver's JVM, as ``-Xmx`` takes it.
        driver_host: where executors of a cluster reach this machine.
        settings: of Spark; they win over ours.
        idle_s: a host that has had nothing to do for so long is ended; it takes some seconds to start one again.
        class_archive: build an archive of the classes that the JVM loads, and start it from that.
        starts_ahead: start the session as soon as the first function is loaded, not with the first run.
        program: starts a host; a test may have another.
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
            raise InvalidConfig(f"idle_s {self.idle_s} must be positive")
        self.session()

    def session(self) -> SessionConfig:
        """Return the settings of the host's session."""
        return SessionConfig(
            directory=self.data_dir / "spark",
            master=self.master,
            app_name="magnetar functions",
            heap=self.heap,
            driver_host=self.driver_host,
            settings=self.settings,
            log_file=self.data_dir / "logs" / "spark.log",
            class_archive=self.class_archive,
            progress=False,  # `functions trigger` shows that of each run
        )


def config_to_text(config: SessionConfig) -> str:
    """Return a session's settings as text for `config_from_text`."""
    return json.dumps(asdict(config) | {"settings": dict(config.settings)}, default=str)


def config_from_text(text: str) -> SessionConfig:
    """Return the settings that `config_to_text` wrote."""
    fields = json.loads(text)
    fields["directory"] = Path(fields["directory"])
    fields["jvm_options"] = tuple(fields["jvm_options"])
    fields["log_file"] = Path(fields["log_file"]) if fields["log_file"] is not None else None
    return SessionConfig(**fields)
