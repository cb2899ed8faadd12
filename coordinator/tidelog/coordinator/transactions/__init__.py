"""Decisions about transactions, replayed from `__transaction_state`."""
