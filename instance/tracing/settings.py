"""Whether calls are traced: OpenTelemetry's environment variables, read without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"


class Wish(NamedTuple):
    """The tracing settings in the environment.

    Attributes:
        variable: variable that names the endpoint; empty if tracing is not enabled.
        refusal: why calls are not traced despite an endpoint; empty if they are.
    """

    variable: str
    refusal: str = ""


def wish_of(environment: Mapping[str, str]) -> Wish:
    """Read the tracing settings of the environment."""
    named = [variable for variable in ENDPOINTS if environment.get(variable)]
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if not named or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return Wish("")
    if exporter != "otlp":
        return Wish("", f"OTEL_TRACES_EXPORTER is {exporter!a}: calls are not traced; give otlp, or leave it out")
    for variable in _PROTOCOLS:
        protocol = environment.get(variable, "").strip()
        if protocol and protocol != _PROTOCOL:
            return Wish(
                "",
                f"{variable} is {protocol!a}: calls are not traced; give {_PROTOCOL} and the endpoint's port for it,"
                " which is 4318 mostly",
            )
        if protocol:
            break
    return Wish(named[0])


def batch_setting(environment: Mapping[str, str], variable: str, usual: int) -> int:
    """Return a setting of the span queue.

    Raises:
        ValueError: it is not a positive number.
    """
    text = environment.get(variable, "").strip()
    if not text:
        return usual
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{variable} is {text!a:.40}; give a positive number")
    return int(text)
