"""The log engine, pure over the file contracts, in Kafka's file formats."""
