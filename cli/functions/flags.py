"""The flags of ``functions create`` and ``update``: one table from flag to field of the FunctionConfig.

A flag that this version cannot honour is sent like any other: the worker refuses its field by name, in the same words
for every tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from ...wire.printable import one_line
from ..failure import Failure
from .target import DEFAULT_NAMESPACE, DEFAULT_TENANT, split_fqfn

GUARANTEES = ("ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE", "MANUAL")
REMOTE_PREFIXES = ("http://", "https://", "file://", "function://", "source://", "sink://")


class Flag(NamedTuple):
    """One flag.

    Attributes:
        names: its spellings; the camelCase ones are accepted and not shown in the help.
        field: where its value goes in the FunctionConfig, ``a.b`` for a field of a nested object.
        kind: how its text is read: a key of `KINDS`.
        help: one line.
    """

    names: tuple[str, ...]
    field: str
    kind: str
    help: str


FLAGS = (
    Flag(("--classname", "--className"), "className", "text", "module.Class or module.function that processes."),
    Flag(("--py",), "py", "text", "The code: a .py, .zip or .whl file, or its URL."),
    Flag(("--jar",), "jar", "text", "Java code; refused, only Python functions run here."),
    Flag(("--go",), "go", "text", "Go code; refused, only Python functions run here."),
    Flag(("-t", "--function-type"), "functionType", "text", "Built-in function."),
    Flag(("-i", "--inputs"), "inputs", "list", "Input topics, separated by commas."),
    Flag(("--topics-pattern", "--topicsPattern"), "topicsPattern", "text", "Pattern of input topics."),
    Flag(("--input-specs",), "inputSpecs", "json", "Input topics with their consumer settings, as JSON."),
    Flag(("--custom-serde-inputs", "--customSerdeInputs"), "customSerdeInputs", "json", "Topic to SerDe class, JSON."),
    Flag(("--custom-schema-inputs",), "customSchemaInputs", "json", "Topic to schema, as JSON."),
    Flag(("--input-type-class-name",), "inputTypeClassName", "text", "Class of the input type."),
    Flag(("-o", "--output"), "output", "text", "Output topic."),
    Flag(("--output-serde-classname", "--outputSerdeClassName"), "outputSerdeClassName", "text", "SerDe of outputs."),
    Flag(("--output-type-class-name",), "outputTypeClassName", "text", "Class of the output type."),
    Flag(("-st", "--schema-type"), "outputSchemaType", "text", "Schema of the output topic."),
    Flag(("--custom-schema-outputs",), "customSchemaOutputs", "json", "Topic to schema, as JSON."),
    Flag(("--producer-config",), "producerConfig", "json", "Settings of the output producer, as JSON."),
    Flag(("--batch-builder",), "batchBuilder", "text", "How outputs are put into batches."),
    Flag(("--forward-source-message-property",), "forwardSourceMessageProperty", "bool", "Copy input properties."),
    Flag(("--log-topic", "--logTopic"), "logTopic", "text", "Topic that receives the function's log."),
    Flag(
        ("--processing-guarantees", "--processingGuarantees"),
        "processingGuarantees",
        "guarantee",
        "; ".join(GUARANTEES),
    ),
    Flag(("--user-config", "--userConfig"), "userConfig", "json", "What context.get_user_config_map gives, as JSON."),
    Flag(("--secrets",), "secrets", "json", "Secrets, as JSON."),
    Flag(("--parallelism",), "parallelism", "int", "Number of instances."),
    Flag(("--runtime",), "runtimeEnv", "text", "Where it runs: process (default), thread or spark."),
    Flag(("--min-partitions",), "minPartitions", "int", "Spark: tasks of a run at least."),
    Flag(("--auto-ack", "--autoAck"), "autoAck", "bool", "Acknowledge for the function (deprecated by Pulsar)."),
    Flag(("--subs-name",), "subName", "text", "Name of the subscription."),
    Flag(
        ("--subs-position",), "subscriptionPosition", "position", "Where a new subscription starts: Latest, Earliest."
    ),
    Flag(("--skip-to-latest",), "skipToLatest", "bool", "Skip the backlog at every start."),
    Flag(("--cleanup-subscription",), "cleanupSubscription", "switch", "Remove the subscription with the function."),
    Flag(("--retain-ordering", "--retainOrdering"), "retainOrdering", "switch", "Process each topic in order."),
    Flag(("--retain-key-ordering",), "retainKeyOrdering", "switch", "Process each key in order."),
    Flag(("--timeout-ms", "--timeoutMs"), "timeoutMs", "int", "Delay before a failed message comes again."),
    Flag(("--max-message-retries",), "maxMessageRetries", "int", "How often a failing message is tried again."),
    Flag(("--dead-letter-topic",), "deadLetterTopic", "text", "Where messages go that failed too often."),
    Flag(("--cpu",), "resources.cpu", "float", "Cores per instance."),
    Flag(("--ram",), "resources.ram", "int", "Bytes of memory per instance."),
    Flag(("--disk",), "resources.disk", "int", "Bytes of disk per instance."),
    Flag(
        ("--window-length-count", "--windowLengthCount"), "windowConfig.windowLengthCount", "int", "Window, messages."
    ),
    Flag(
        ("--window-length-duration-ms", "--windowLengthDurationMs"),
        "windowConfig.windowLengthDurationMs",
        "int",
        "Window, ms.",
    ),
    Flag(
        ("--sliding-interval-count", "--slidingIntervalCount"),
        "windowConfig.slidingIntervalCount",
        "int",
        "Slide, messages.",
    ),
    Flag(
        ("--sliding-interval-duration-ms", "--slidingIntervalDurationMs"),
        "windowConfig.slidingIntervalDurationMs",
        "int",
        "Slide, ms.",
    ),
    Flag(("--custom-runtime-options",), "customRuntimeOptions", "text", 'JSON text, such as {"runtimeEnv":"thread"}.'),
    Flag(("--runtime-flags",), "runtimeFlags", "text", "Flags for the runtime."),
)


class QuietOption(click.Option):
    """An option whose camelCase spellings work but do not stand in the help."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help without the old spellings."""
        spellings = self.opts
        self.opts = [name for name in spellings if name == name.lower()]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = spellings


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it must be a JSON object, {…}")
    return value


def _choice(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"it must be one of {', '.join(words)}")
        return text

    return read


def _number(kind: type[int] | type[float], what: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"it must be {what}") from None

    return read


def _boolean(text: str) -> bool:
    return _choice("true", "false")(text.lower()) == "true"


KINDS: Mapping[str, Callable[[str], Any]] = {
    "text": str,
    "int": _number(int, "a whole number"),
    "float": _number(float, "a number"),
    "bool": _boolean,
    "switch": _boolean,
    "json": _json_object,
    "list": lambda text: [part.strip() for part in text.split(",") if part.strip()],
    "guarantee": _choice(*GUARANTEES),
    "position": _choice("Latest", "Earliest"),
}


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command every flag of the table, and ``--function-config-file``."""
    for flag in reversed(FLAGS):
        extra: dict[str, Any] = {}
        if flag.kind == "switch":  # `--flag` alone is true, `--flag=false` is possible
            extra = {"is_flag": False, "flag_value": "true"}
        metavar = {"json": "JSON", "int": "N", "float": "N", "bool": "true|false", "list": "A,B"}.get(flag.kind, "TEXT")
        command = click.option(*flag.names, variable(flag), cls=QuietOption, metavar=metavar, help=flag.help, **extra)(
            command
        )
    return click.option(
        "--function-config-file",
        "--functionConfigFile",
        "config_file",
        cls=QuietOption,
        metavar="FILE",
        help="YAML or JSON file with the config; flags replace its fields.",
    )(command)


def variable(flag: Flag) -> str:
    """Return the name under which a command receives the flag's text."""
    return "flag_" + flag.field.replace(".", "__")


def build_config(config_file: str | None, given: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the FunctionConfig of the file with the given flags laid over it.

    Raises:
        Failure: the file is unreadable, or a flag's text is not of its kind.
    """
    config = read_config_file(config_file) if config_file else {}
    for flag in FLAGS:
        text = given.get(variable(flag))
        if text is None:
            continue
        try:
            value = KINDS[flag.kind](text)
        except ValueError as exc:
            raise Failure(f"{flag.names[0]} {text!r} is refused: {exc}") from exc
        outer, _, inner = flag.field.partition(".")
        if inner:
            nested = config.get(outer)
            config[outer] = {**(nested if isinstance(nested, dict) else {}), inner: value}
        else:
            config[outer] = value
    return config


def read_config_file(path: str) -> dict[str, Any]:
    """Return the content of a YAML (or JSON, which is YAML) config file.

    Raises:
        Failure: no such file, no YAML, or no mapping in it.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text())
    except OSError as exc:
        raise Failure(f"config file {path} cannot be read: {exc.strerror}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise Failure(f"config file {path} is no YAML: {one_line(str(exc))}") from exc
    if not isinstance(content, dict):
        raise Failure(f"config file {path} must hold `field: value` lines, such as `className: module.function`")
    return content


def complete_names(config: dict[str, Any], fqfn: str | None, tenant: str | None, namespace: str | None) -> None:
    """Fill in tenant, namespace and name; a missing name is the last part of the class name, as in Pulsar.

    Raises:
        Failure: no name can be found.
    """
    fqfn = fqfn or config.pop("fqfn", None)
    if fqfn:
        config["tenant"], config["namespace"], config["name"] = split_fqfn(str(fqfn))
    config["tenant"] = tenant or config.get("tenant") or DEFAULT_TENANT
    config["namespace"] = namespace or config.get("namespace") or DEFAULT_NAMESPACE
    if not config.get("name"):
        name = str(config.get("className") or "").rpartition(".")[2]
        if not name:
            raise Failure("No Function name specified: give --name, or --classname whose last part becomes the name")
        config["name"] = name


def is_remote(package: str) -> bool:
    """Return whether a package is fetched by the worker instead of sent by us."""
    return package.startswith(REMOTE_PREFIXES)
