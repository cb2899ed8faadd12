"""One file per API key: typed request and response classes."""
