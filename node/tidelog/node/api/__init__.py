"""One handler per API key: check, turn into an event, shape the reply."""
