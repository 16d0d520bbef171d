"""A broker with 200 topics and 400 reconnecting consumers, for ten minutes (see `__main__.py`)."""
