"""Client connections: order, bounds and back-pressure."""
