"""Connections to SQL databases, and classification of their errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ..api.connector import Retry
from ..errors import InvalidConfig
from .libraries import need

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

CONNECT_S = 10
STATEMENT_S = 60
"""Statement timeout in seconds. A statement that waits longer for a lock is retried."""

_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mariadb": "mysql+pymysql",
    "mysql": "mysql+pymysql",
    "sqlite": "sqlite",
}
_JDBC_PARAMETERS = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "ApplicationName": "application_name",
    "applicationName": "application_name",
    "options": "options",
}
"""Supported parameters of JDBC URLs, with their SQLAlchemy names."""


def sqlalchemy_url(text: str, key: str = "jdbcUrl") -> str:
    """Convert a URL such as ``jdbc:postgresql://…`` to SQLAlchemy's format, which is also accepted.

    Args:
        text: the URL.
        key: option name.

    Raises:
        InvalidConfig: the URL is invalid.
    """
    is_jdbc = text.startswith("jdbc:")
    scheme, _, rest = text.removeprefix("jdbc:").partition(":")
    examples = "jdbc:postgresql://host:5432/database, jdbc:mariadb://host:3306/database, jdbc:sqlite:/path/file.db"
    if (not rest.startswith("//") and scheme != "sqlite") or (is_jdbc and scheme not in _DRIVERS):
        raise InvalidConfig(f"invalid {key} {_without_password(text)!r}: expected a database URL such as {examples}")
    if scheme == "sqlite":
        if is_jdbc:
            rest = f"///{rest}"
        if not rest.startswith("///") or not rest.partition("?")[0].strip("/") or ":memory:" in rest:
            raise InvalidConfig(f"invalid {key} {text!r}: expected a file, as in jdbc:sqlite:/path/file.db")
        return f"sqlite:{rest}"
    try:
        split = urlsplit(f"x:{rest}")
        _ = split.port  # raises ValueError if the port is not a number
    except ValueError as error:
        raise InvalidConfig(f"invalid {key} {_without_password(text)!r}: {error}") from None
    if not split.hostname or not split.path.strip("/"):
        raise InvalidConfig(
            f"invalid {key} {_without_password(text)!r}: expected a host and a database, as in {examples}"
        )
    if is_jdbc:
        rest = _without_jdbc(rest, split.query, key)
    return f"{_DRIVERS.get(scheme, scheme)}:{rest}"


def _without_jdbc(rest: str, query: str, key: str) -> str:
    """Return a URL without its scheme, with JDBC parameters converted to SQLAlchemy's."""
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "currentSchema":
            parameters["options"] = f"-csearch_path={value}"
        elif name == "ssl":
            parameters["sslmode"] = "require" if value == "true" else "prefer"
        elif name in _JDBC_PARAMETERS:
            parameters[_JDBC_PARAMETERS[name]] = value
        else:
            known = ", ".join(["currentSchema", "ssl", *_JDBC_PARAMETERS])
            raise InvalidConfig(f"{key}: unknown parameter {name!r}: expected {known}")
    user, password = parameters.pop("user", ""), parameters.pop("password", "")
    place = rest.partition("?")[0]
    if user:
        login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        place = f"//{login}@{place.removeprefix('//').rpartition('@')[2]}"
    return place + (f"?{urlencode(parameters, quote_via=quote)}" if parameters else "")


def _without_password(text: str) -> str:
    place, _, _ = text.partition("?")
    before, at, behind = place.rpartition("@")
    return f"{before.partition('//')[0]}//***@{behind}" if at else place


def make_engine(connector: str, url: str, user: str, password: str, *, writes: bool = True) -> Engine:
    """Return an engine that is not connected yet.

    Args:
        connector: connector name.
        url: a URL returned by `sqlalchemy_url`.
        user: user name; empty to use the one in the URL.
        password: password of the user.
        writes: whether the engine's transactions write.

    Raises:
        InvalidConfig: a library is not installed.
    """
    sqlalchemy = need("jdbc", "sqlalchemy", connector)
    made = sqlalchemy.make_url(url)
    if user:
        made = made.set(username=user)
    if password:
        made = made.set(password=password)
    arguments: dict[str, Any] = {}
    kind = made.get_backend_name()
    if made.drivername == "postgresql+psycopg":
        need("jdbc", "psycopg", connector)
        # Without the encoding, strings from a SQL_ASCII database would be bytes, which SQLAlchemy does not support.
        arguments = {
            "connect_timeout": CONNECT_S, "tcp_user_timeout": STATEMENT_S * 1000, "client_encoding": "utf8"
        }  # fmt: skip
    elif made.drivername == "mysql+pymysql":
        need("jdbc", "pymysql", connector)
        arguments = {"connect_timeout": CONNECT_S, "read_timeout": STATEMENT_S, "write_timeout": STATEMENT_S}
    elif kind == "sqlite":
        arguments = {"timeout": 5.0, "isolation_level": None}
    try:
        engine: Engine = sqlalchemy.create_engine(made, connect_args=arguments, poolclass=sqlalchemy.NullPool)
    except (ImportError, sqlalchemy.exc.ArgumentError) as error:
        raise InvalidConfig(f"cannot load {made.drivername}: {error}; install its driver") from error
    if kind == "sqlite" and writes:
        # The sqlite3 module's implicit transactions start too late to see changes by other transactions.
        sqlalchemy.event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def connect(engine: Engine) -> Connection:
    """Return a connection whose statements time out after `STATEMENT_S` and reject values that do not fit a column.

    Raises:
        Retry: the database is unavailable or rejects the user.
    """
    import sqlalchemy

    try:
        connection = engine.connect()
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET statement_timeout = '{STATEMENT_S}s'")
        elif engine.dialect.name in ("mysql", "mariadb"):
            connection.exec_driver_sql(
                "SET SESSION time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
            )
        connection.commit()
    except sqlalchemy.exc.DBAPIError as error:
        raise away(engine, error) from error
    return connection


def away(engine: Engine, error: Exception) -> Retry:
    """Return the Retry for a database error that was not caused by a record."""
    url = engine.url
    place = url.database if engine.dialect.name == "sqlite" else f"{url.host}:{url.port or ''}/{url.database}"
    return Retry(f"{engine.dialect.name} {place}: {text_of(error)}")


def text_of(error: Exception) -> str:
    """Return the message of a database error in one line."""
    original = getattr(error, "orig", None) or error
    arguments = original.args
    is_numbered = len(arguments) > 1 and isinstance(arguments[0], int)
    text = f"{arguments[1]} ({arguments[0]})" if is_numbered else str(original) or type(original).__name__
    return " ".join(text.split())[:500]


_MYSQL_REFUSALS = frozenset(
    (1048, 1062, 1136, 1216, 1217, 1264, 1265, 1292, 1300, 1364, 1365, 1366, 1367, 1406, 1411, 1416, 1426)
) | frozenset((1438, 1451, 1452, 1557, 1586, 1644, 1690, 1761, 1762, 3140, 3156, 3819, 4025, 4038))
"""Errors of MariaDB and MySQL caused by the values of a row."""


def is_fault_of_row(dialect: str, error: Exception) -> bool:
    """Return whether a driver error means that a row can never be written."""
    original = getattr(error, "orig", None) or error
    if dialect == "postgresql":
        state = getattr(original, "sqlstate", None)
        if state is None:  # raised by psycopg itself, for example for a NUL in a string
            return type(original).__name__ == "DataError"
        return state[:2] in ("22", "23", "44", "54") or state in ("21000", "42804", "P0001")
    if dialect in ("mysql", "mariadb"):
        number = original.args[0] if original.args else 0
        if not isinstance(number, int):  # raised by PyMySQL itself, for example for an infinite number
            return True
        return number in _MYSQL_REFUSALS or type(original).__name__ == "DataError"
    return type(original).__name__ in ("IntegrityError", "DataError", "OverflowError")


_SQLITE_UNREADABLE = ("Could not decode to UTF-8", "integer overflow", "malformed JSON", "string or blob too big")
"""Errors of SQLite caused by values. They have the same code as a missing table."""


def is_unreadable(dialect: str, error: Exception) -> bool:
    """Return whether an error was caused by values of the rows being read, so that other rows are readable."""
    original = getattr(error, "orig", None)
    if original is None:  # not raised by the driver: a Python type does not support the value
        return isinstance(error, ValueError | ArithmeticError)
    if dialect == "sqlite":
        return type(original).__name__ == "DataError" or any(text in str(original) for text in _SQLITE_UNREADABLE)
    return is_fault_of_row(dialect, error)
