"""Serverless functions in Python on a bundled broker that speaks the Apache Pulsar protocol."""

__version__ = "0.1.0"
