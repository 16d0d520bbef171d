"""Spans of the calls of a function, by OpenTelemetry; the only package that imports it, and only where it is wanted."""
