"""A function whose code is an SQL statement: consequences of the field `sql`, and fields that exclude it."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidConfig
from .function_config import SPARK, FunctionConfig
from .sql_statement import SQL_CLASS, check_statement, view_names
from .table import Json


def complete(config: dict[str, Any], values: Json) -> dict[str, Any]:
    """Return the attributes of a config with a statement, including implied ones.

    Args:
        config: known attributes.
        values: fields as sent.

    Raises:
        InvalidConfig: the statement is empty, or code was sent too.
    """
    if not (config.get("sql") or "").strip():
        check_statement("")
    if values.get("py"):
        raise InvalidConfig("py: the function is the statement in sql; leave one out")
    named = config.get("class_name")
    if named not in (None, SQL_CLASS):
        raise InvalidConfig(f"className {named}: the function is the statement in sql; leave one out")
    implied = {"class_name": SQL_CLASS, "runtime": "PYTHON", "runtime_env": SPARK}
    return config | {name: value for name, value in implied.items() if config.get(name) is None}


def check_sql(config: FunctionConfig) -> None:
    """Reject an invalid statement, and settings for functions with code.

    Raises:
        InvalidConfig: names the field, and what to do.
    """
    if config.runtime_env != SPARK:
        raise InvalidConfig(f"sql: Spark runs statements, and runtimeEnv is {config.runtime_env}; leave it out")
    check_statement(config.sql or "")
    view_names(config.input_specs)
    if not config.output:
        raise InvalidConfig("sql: the result needs an output topic: set output")
    for name, value in (
        ("userConfig", config.user_config),
        ("outputSerdeClassName", config.output_serde_class_name),
        ("outputSchemaType", config.output_schema_type),
        ("inputTypeClassName", config.input_type_class_name),
        ("outputTypeClassName", config.output_type_class_name),
    ):
        if value:
            raise InvalidConfig(f"{name}: it is for code, and the function is a statement; leave it out")
    for topic, spec in config.input_specs.items():
        for name, value in (("serdeClassName", spec.serde_class_name), ("schemaType", spec.schema_type)):
            if value:
                raise InvalidConfig(
                    f"inputSpecs[{topic}].{name}: it is for code, and a statement is given bytes; leave it out, and"
                    " cast value"
                )


def check_code_stays(existing: FunctionConfig, sent: FunctionConfig) -> None:
    """Reject an update from code to a statement or vice versa.

    Raises:
        InvalidConfig: says what the function is.
    """
    if sent.sql and not existing.sql:
        raise InvalidConfig(
            f"sql: the function has code, {existing.class_name}: delete and recreate the function to use a statement"
        )
    if existing.sql and (sent.py or sent.class_name not in (None, SQL_CLASS)):
        raise InvalidConfig(
            f"{'py' if sent.py else 'className'}: the function is an SQL statement: delete and recreate the"
            " function to use code"
        )
