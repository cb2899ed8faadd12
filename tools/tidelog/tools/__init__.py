"""The command line, the supervisor and everything a person runs."""
