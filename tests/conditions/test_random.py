"""Random conditions on random rows mean what plain code says of one row after the other."""

from __future__ import annotations

import random

import pytest

from lakelatch.conditions import condition_on, parse, text
from lakelatch.conditions.tree import Node
from lakelatch.conflict import may_match, where_of
from lakelatch.conflict.predicate import ColumnStatistics, FileStatistics
from lakelatch.errors import InputError

from . import random_conditions as made

ROUNDS = 150


def bound_ones(rng: random.Random, number: int) -> list[tuple[Node, object]]:
    found = []
    while len(found) < number:
        tree = made.condition(rng, 3)
        try:
            found.append((tree, condition_on(made.SCHEMA, text(tree))))
        except InputError:
            continue
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_condition_marks_the_rows_that_plain_code_finds(seed: int) -> None:
    rng = random.Random(seed)
    rows = made.rows(rng, 60)
    plain = rows.to_pylist()
    told = 0
    for tree, condition in bound_ones(rng, ROUNDS):
        try:
            expected = [made.said(condition.bound, row) is True for row in plain]
        except made.NoResult:
            with pytest.raises(InputError):
                condition.mask(rows)
            continue
        told += 1
        assert condition.mask(rows).to_pylist() == expected, text(tree)
    assert told > ROUNDS / 2


@pytest.mark.parametrize("seed", range(3))
def test_text_of_a_condition_is_read_as_the_same_condition(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        tree = parse(text(made.condition(rng, 4)))
        assert parse(text(tree)) == tree
    for _, condition in bound_ones(rng, ROUNDS):
        assert condition_on(made.SCHEMA, condition.sql).sql == condition.sql
        assert condition_on(made.SCHEMA, condition) == condition


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_match_are_never_in_a_file_that_the_implied_terms_exclude(seed: int) -> None:
    rng = random.Random(seed)
    rows = made.rows(rng, 60)
    excluded = 0
    for tree, condition in bound_ones(rng, ROUNDS):
        where = where_of(condition.terms)
        for start in range(0, 60, 3):
            part = rows.slice(start, 3)
            statistics = FileStatistics(3, {name: bounds(part.column(name)) for name in part.column_names})
            if may_match(where, statistics):
                continue
            excluded += 1
            try:
                assert True not in condition.mask(part).to_pylist(), text(tree)
            except InputError:
                continue
    assert excluded > 50


def bounds(column: object) -> ColumnStatistics:
    values = [each for each in column.to_pylist() if each is not None and each == each]
    nulls = column.null_count
    if not values or isinstance(values[0], dict | float):
        return ColumnStatistics(nulls=nulls)
    return ColumnStatistics(min(values), max(values), nulls)


@pytest.mark.parametrize("seed", range(3))
def test_the_part_about_some_columns_is_true_wherever_the_whole_is(seed: int) -> None:
    rng = random.Random(seed)
    rows = made.rows(rng, 60)
    seen = 0
    for tree, condition in bound_ones(rng, ROUNDS):
        part = condition.about(["i", "s", "d"])
        if part is None:
            continue
        seen += 1
        assert part.columns <= {"i", "s", "d"}
        try:
            whole, some = condition.mask(rows).to_pylist(), part.mask(rows).to_pylist()
        except InputError:
            continue
        assert all(s for w, s in zip(whole, some, strict=True) if w), text(tree)
    assert seen > 5
