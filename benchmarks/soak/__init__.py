"""Functions at half of their maximum rate for half an hour, with one process killed per minute (see `__main__.py`)."""
