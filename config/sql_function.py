"""A function whose code is an SQL statement: consequences of the field `sql`, and fields that exclude it."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidConfig
from .function_config import SPARK, FunctionConfig
from .sql_statement import SQL_CLASS, check_statement, view_names
from .table import Json


def complete(config: dict[str, Any], values: Json) -> dict[str, Any]:
    """Return the attributes of a config with a statement, including implied attributes.

    Args:
        config: known attributes.
        values: fields as sent.

    Raises:
        InvalidConfig: the statement is empty, or code was also sent.
    """
    if not (config.get("sql") or "").strip():
        check_statement("")
    if values.get("py"):
        raise InvalidConfig("py and sql are mutually exclusive: set only one of them")
    named = config.get("class_name")
    if named not in (None, SQL_CLASS):
        raise InvalidConfig(f"className {named} and sql are mutually exclusive: set only one of them")
    implied = {"class_name": SQL_CLASS, "runtime": "PYTHON", "runtime_env": SPARK}
    return config | {name: value for name, value in implied.items() if config.get(name) is None}


def check_sql(config: FunctionConfig) -> None:
    """Reject an invalid statement, and settings for functions with code.

    Raises:
        InvalidConfig: a setting is invalid. The message contains the field and the remedy.
    """
    if config.runtime_env != SPARK:
        raise InvalidConfig(f"sql requires runtimeEnv spark, not {config.runtime_env}: remove runtimeEnv")
    check_statement(config.sql or "")
    view_names(config.input_specs)
    if not config.output:
        raise InvalidConfig("sql requires an output topic: set output")
    for name, value in (
        ("userConfig", config.user_config),
        ("outputSerdeClassName", config.output_serde_class_name),
        ("outputSchemaType", config.output_schema_type),
        ("inputTypeClassName", config.input_type_class_name),
        ("outputTypeClassName", config.output_type_class_name),
    ):
        if value:
            raise InvalidConfig(f"{name} is not supported with sql: remove this field")
    for topic, spec in config.input_specs.items():
        for name, value in (("serdeClassName", spec.serde_class_name), ("schemaType", spec.schema_type)):
            if value:
                raise InvalidConfig(
                    f"inputSpecs[{topic}].{name} is not supported with sql, which receives bytes: remove this field, "
                    f"and cast value"
                )


def check_code_stays(existing: FunctionConfig, sent: FunctionConfig) -> None:
    """Reject an update from code to a statement or vice versa.

    Raises:
        InvalidConfig: the update is not possible. The message contains the kind of function.
    """
    if sent.sql and not existing.sql:
        raise InvalidConfig(
            f"sql: the function consists of code ({existing.class_name}): delete and recreate the function to use a "
            f"statement"
        )
    if existing.sql and (sent.py or sent.class_name not in (None, SQL_CLASS)):
        raise InvalidConfig(
            f"{'py' if sent.py else 'className'}: the function is an SQL statement: delete and recreate the function "
            f"to use code"
        )
