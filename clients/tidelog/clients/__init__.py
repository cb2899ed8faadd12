"""Kafka clients over one sans-IO core; only transport.py touches sockets."""
