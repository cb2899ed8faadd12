"""Faults done on purpose to a running cluster, each by a seed that repeats it."""
