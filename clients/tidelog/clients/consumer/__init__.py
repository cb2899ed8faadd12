"""From positions to records; no I/O."""
