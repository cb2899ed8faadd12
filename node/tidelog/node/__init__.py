"""The broker: log, replicas, network, and the shells that run them."""
