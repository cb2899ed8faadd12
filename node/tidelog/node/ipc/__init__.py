"""Shared memory and ZeroMQ between the cluster's processes."""
