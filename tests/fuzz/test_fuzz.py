"""Whatever bytes others leave, the answer is a value or one of our errors: no crash, no endless work, nothing deleted."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from ..thorough import THOROUGH
from .targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_of_others_end_in_a_value_or_in_a_sentence(name):
    target = TARGETS[name]
    # The deadline is no measure of speed: endless work passes any.
    run = given(target.given)(target.__call__)
    settings(max_examples=60 if THOROUGH else 25, deadline=20_000, suppress_health_check=list(HealthCheck))(run)()
