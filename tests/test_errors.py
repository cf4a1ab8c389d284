"""Every error leads on: to the section of its class, in a traceback too."""

from __future__ import annotations

import pickle
import re
import traceback
from pathlib import Path

import pytest

from lakelatch import errors

PAGE = (Path(__file__).parents[1] / "docs/errors.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_public_error_class_has_its_section_and_no_other_has_one() -> None:
    assert sorted(SECTIONS) == sorted(errors.__all__)


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"LakeLatchError"}))
def test_the_section_says_what_happened_and_whether_it_landed_as_the_class_does(name: str) -> None:
    cls, text = getattr(errors, name), SECTIONS[name]
    assert "**What happened:**" in text
    landed = re.search(r"\*\*Landed:\*\*\s+(.*?)[.;]", text, re.DOTALL)
    assert landed
    assert ("nobody knows" in landed[1]) == (cls.landed is None)
    assert cls.docs == f"docs/errors.md#{name.lower()}"


def test_a_traceback_ends_with_the_link_once_and_the_message_does_not_have_it() -> None:
    error = pickle.loads(pickle.dumps(errors.LockTimeoutError("busy {0} %s", key="k")))
    assert str(error) == "busy {0} %s"
    assert traceback.format_exception(error)[-1] == f"see {errors.LockTimeoutError.docs}\n"
    assert "".join(traceback.format_exception(error)).count(error.docs) == 1


def test_a_class_of_somebody_else_leads_to_the_section_of_its_base() -> None:
    class Mine(errors.LockError):
        pass

    assert Mine("x").docs == errors.LockError.docs
