"""A broker with 200 topics and 400 consumers that come and go, for ten minutes: see `__main__.py`."""
