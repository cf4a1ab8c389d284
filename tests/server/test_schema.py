"""The description of the API is what the API does: requests made up from it, right ones and wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

import lakelatch
from lakelatch.server import Limits
from lakelatch.testing.contention import PATIENCE_S

from .conftest import TOKEN, Client, lose, rows, serving

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = str(tmp_path_factory.mktemp("schema") / "flights")
    with lakelatch.create(place, record_key="id", partition_by="origin") as table:
        table.insert(rows(0))
        lose(table)
    limits = Limits(requests_s=100_000, failures_s=100_000)
    with serving({"flights": place}, limits=limits, coordinate=True) as server:
        yield server.url


# The server is in this process, and its threads use `random` while a strategy does.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_request_gets_more_or_less_than_the_description_says(url: str, mode: str):
    described = schemathesis.openapi.from_dict(Client(url)("/openapi.json").json())
    operations = [each.ok() for each in described.get_all_operations()]
    assert len(operations) > 10
    for operation in operations:
        made = operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode))

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=made)
        def ask(case):
            answer = case.call(base_url=url, headers=HEADERS, timeout=PATIENCE_S)
            assert answer.status_code < 500, answer.text
            assert answer.headers["x-content-type-options"] == ["nosniff"]
            # Two parameters, right in themselves, may not fit each other, or name nothing: that is refused as well.
            excluded = [checks.positive_data_acceptance]
            sent = parse_qs(urlsplit(answer.request.url).query, keep_blank_values=True)
            if set(case.query or ()) - set(
                sent
            ):  # a wrong parameter with an empty list for its value is not sent at all
                excluded.append(checks.negative_data_rejection)
            case.validate_response(answer, headers=HEADERS, excluded_checks=excluded)

        with suppress(Unsatisfiable):  # there is no wrong request where nothing can be given
            ask()


def test_every_address_of_the_api_is_described(url: str):
    paths = Client(url)("/openapi.json").json()["paths"]
    for path in (each for each, methods in paths.items() if "get" in methods):
        found = Client(url)(path.format(table="flights", instant="20260101000000000"))
        assert found.status in (200, 400)


def test_the_description_names_the_tables_and_no_folder(url: str, tmp_path: Path):
    body = Client(url)("/openapi.json").body.decode()
    assert '"flights"' in body
    assert str(tmp_path.parent) not in body
