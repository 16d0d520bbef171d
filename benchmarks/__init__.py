"""Benchmarks, run by `python -m benchmarks` or `make bench`, never by the tests; results are in RESULTS.md."""
