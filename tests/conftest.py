"""Settings of the whole run: how many cases Hypothesis draws, and that it judges no time."""

import os

from hypothesis import HealthCheck, settings

COMMON = settings(
    deadline=None,  # machines are shared; a slow case is no fault
    print_blob=True,  # a failure prints the line that shows the same case again
    suppress_health_check=[HealthCheck.too_slow],
)

settings.register_profile("loop", COMMON, max_examples=50)
settings.register_profile("full", COMMON, max_examples=200)
settings.register_profile("ci", COMMON, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))
