"""What a partition's leader knows and whom it makes wait."""
