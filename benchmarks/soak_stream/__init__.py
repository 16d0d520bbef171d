"""Streams of Spark over ten million rows whose driver, executors, workers and broker are killed: see `__main__.py`."""
