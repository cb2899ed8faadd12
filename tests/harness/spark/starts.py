"""Queries that a busy machine does not let start."""

from typing import Final

NOT_STARTED: Final = "Python worker failed to connect back"
"""Spark gives the Python process that plans a stream ten seconds to start, which is not enough on a
very busy machine. Nothing has been planned then, and the query is started again."""
STARTS_MAX: Final = 5
