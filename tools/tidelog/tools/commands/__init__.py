"""One thin module per noun of the command line."""
