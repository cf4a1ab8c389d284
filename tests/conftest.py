"""What holds for every test: how Hypothesis makes up examples, and that nothing beside the checkout is read."""

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .beside import watch
from .facts import hold_types
from .java import short_lived
from .thorough import THOROUGH, covering, some

CASES_MAX = {"occ": 6, "spark": 2, "model": 30, "mergers": 8}  # of a test, by folder

watch()
short_lived()
hold_types()

# A deadline for an example, and a check that examples come quickly, would make these timed tests, which a busy machine
# fails. The examples are the same in every run, so that what fails once fails again; `make thorough` looks for new ones,
# and for more of them.
settings.register_profile(
    "tests",
    deadline=None,
    derandomize=not THOROUGH,
    max_examples=100 if THOROUGH else 40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


def pytest_collection(session: pytest.Session) -> None:
    gc.disable()  # what is imported and collected stays: each collection would go through all of it in vain


def pytest_collection_finish(session: pytest.Session) -> None:
    # The thousands of tests that wait for their turn live as long as the process, so that no collection looks at them again.
    gc.collect()
    gc.freeze()
    gc.enable()


def _cases_max(item: pytest.Item) -> int:
    here = Path(__file__).parent
    return next((most for folder, most in CASES_MAX.items() if here / folder in item.path.parents), 0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test that is parametrised more than once, keep a part in which each value stands at least once.

    Under each parameter of its fixtures: a suite that every lock passes is no enumeration. A case that is named is run, and the
    table of decisions, which takes no time, is run as a whole. Of those marked ``thorough`` none is kept, and of the thousands of
    cases of `occ` and `spark` the first, the last and some between, for each test that is not marked ``whole``.
    """
    if any("::" in each for each in config.args):
        return
    crossed = dict[tuple[object, ...], list[tuple[pytest.Item, tuple[object, ...]]]]()
    long = dict[tuple[object, ...], list[pytest.Item]]()
    for item in items:
        marks = [mark.args[0] for mark in item.iter_markers("parametrize") if mark.args]
        if len(marks) > 1 and isinstance(item, pytest.Function) and item.path.parent.name != "conflict":
            axes = [tuple(each.replace(" ", "").split(",") if isinstance(each, str) else each) for each in marks]
            named = {name for axis in axes for name in axis}
            under = tuple((name, n) for name, n in item.callspec.indices.items() if name not in named)
            row = tuple(tuple(id(item.callspec.params[name]) for name in axis) for axis in axes)
            crossed.setdefault((item.parent, item.originalname, under), []).append((item, row))
        elif marks and isinstance(item, pytest.Function) and _cases_max(item) and not item.get_closest_marker("whole"):
            long.setdefault((item.parent, item.originalname), []).append(item)
    left_out = set[pytest.Item]() if THOROUGH else {each for each in items if each.get_closest_marker("thorough")}
    for each in long.values():
        left_out |= set(each) - set(some(each, _cases_max(each[0])))
    for cases in crossed.values():
        kept = set(covering([row for _, row in cases]))
        left_out |= {item for n, (item, _) in enumerate(cases) if n not in kept}
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))
