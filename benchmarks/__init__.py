"""Benchmarks: `python -m benchmarks`, or `make bench`. Never part of the tests; their figures are in RESULTS.md."""
