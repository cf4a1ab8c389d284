"""Whatever cannot be right is refused at the door: with an error of ours, a sentence that names it, and nothing written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .bad_calls import PAGE, Raised, all_tried, page

# What a sentence may call an argument without a name of its own.
HANDED_IN = re.compile(
    r"\b(address|clause|columns?|condition|group|instant|key|lock|operation|partition|rows|schema|slices|stats|session|work)\b",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Raised]:
    return list(all_tried(Path(tmp_path_factory.mktemp("calls")).resolve()))


def told(wrong: list[Raised]) -> str:
    return "\n".join(f"{one.call}: {one.kind}: {one.message} {one.written}" for one in wrong)


def test_there_are_hundreds_on_every_door(found):
    assert len(found) > 500
    assert len({one.door for one in found}) >= 12


def test_each_raises_an_error_of_ours(found):
    assert not (wrong := [one for one in found if not one.ours]), told(wrong)


def test_none_writes_a_byte(found):
    assert not (wrong := [one for one in found if one.written]), told(wrong)


def test_each_sentence_ends_without_a_full_stop_and_says_what_it_is_about(found):
    ours = [one for one in found if one.door != "command line" or "lakelatch: " in one.message]
    assert not (wrong := [one for one in ours if one.message.endswith(".") or len(one.message) < 15]), told(wrong)
    unnamed = [one for one in ours if not named(one)]
    assert not unnamed, told(unnamed)


def named(one: Raised) -> bool:
    """Whether the sentence has a word of the call, the place of the table, or what an argument is called."""
    words, given = (set(re.findall(r"[a-z]+", text.lower())) for text in (one.message, one.call))
    return bool(words & (given - {"t", "id", "new", "rows"}) or "ROOT" in one.message or HANDED_IN.search(one.message))


def test_the_page_shows_them(found):
    assert page(found) == PAGE.read_text(), "python -m tests.bad_calls --write"
