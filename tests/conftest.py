"""What holds for every test: how Hypothesis makes up examples, and that nothing beside the checkout is read."""

from hypothesis import HealthCheck, settings

from .beside import watch
from .thorough import THOROUGH

watch()

# A deadline for an example, and a check that examples come quickly, would make these timed tests, which a busy machine
# fails. The examples are the same in every run, so that what fails once fails again; `make thorough` looks for new ones.
settings.register_profile(
    "tests", deadline=None, derandomize=not THOROUGH, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")
