"""Plans that ask several brokers and give one answer; no I/O."""
