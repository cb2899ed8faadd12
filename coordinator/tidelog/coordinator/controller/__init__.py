"""Decisions about brokers and topics, replayed from the metadata log."""
