"""Functions at half of their maximum for half an hour, while one process a minute is killed: see `__main__.py`."""
