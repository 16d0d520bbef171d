"""Spark streams over ten million rows while driver, executors, workers and broker are killed (see `__main__.py`)."""
