"""How examples are made up, for every test that has its examples from Hypothesis."""

from hypothesis import HealthCheck, settings

from .thorough import THOROUGH

# A deadline for an example, and a check that examples come quickly, would make these timed tests, which a busy machine
# fails. The examples are the same in every run, so that what fails once fails again; `make thorough` looks for new ones.
settings.register_profile(
    "tests", deadline=None, derandomize=not THOROUGH, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")
