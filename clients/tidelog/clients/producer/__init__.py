"""From records to acknowledged batches; no I/O."""
