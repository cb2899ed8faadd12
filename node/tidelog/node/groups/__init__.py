"""Consumer groups: who is in them, and how far each has read."""
