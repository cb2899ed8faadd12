"""The Kafka protocol as values and bytes; no I/O."""
