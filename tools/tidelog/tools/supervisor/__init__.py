"""Forks the cluster's processes and watches them; never a thread, ZeroMQ or a loop."""
