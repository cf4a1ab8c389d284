"""One spelling per place."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import ConfigError, InputError
from lakelatch.storage import open_store, same_place
from lakelatch.storage.location import canonical


@pytest.mark.parametrize(
    "spelling", ["{}", "{}/", "{}//", "{}/.", "{}/x/..", "file:{}", "file://{}", "FILE://localhost{}"]
)
def test_a_folder_has_one_name(tmp_path, spelling):
    assert canonical(spelling.format(tmp_path)) == f"file://{tmp_path}"
    assert same_place(spelling.format(tmp_path), tmp_path)


def test_a_relative_path_and_a_link_name_the_folder_they_lead_to(tmp_path, monkeypatch):
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to("table")
    monkeypatch.chdir(tmp_path)
    for spelling in ("table", "./table", "link", f"{tmp_path}/link/", "file:" + str(tmp_path / "link")):
        assert canonical(spelling) == f"file://{tmp_path}/table"


def test_a_folder_that_does_not_exist_yet_has_its_name_already(tmp_path):
    before = canonical(tmp_path / "a" / "table")
    (tmp_path / "a" / "table").mkdir(parents=True)
    assert canonical(tmp_path / "a" / "table") == before


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("s3://b/t", "s3://b/t"),
        ("s3a://b/t/", "s3://b/t"),
        ("S3N://b//x/../t/.", "s3://b/t"),
        ("s3://b/sp%20ace", "s3://b/sp%20ace"),
        ("s3://b/sp ace", "s3://b/sp%20ace"),
        ("s3://b/ü", "s3://b/%C3%BC"),
        ("s3://b/t?endpoint=http://127.0.0.1:9&secret_access_key=hidden", "s3://b/t"),
        ("s3://b", "s3://b"),
        ("gs://b/t", "gs://b/t"),
        ("gcs://b/t", "gs://b/t"),
        ("az://c/t", "az://c/t"),
        ("abfss://c@Account.dfs.core.windows.net/t/", "abfss://c@account.dfs.core.windows.net/t"),
        ("abfs://c@account.blob.core.windows.net/t", "abfss://c@account.dfs.core.windows.net/t"),
        ("az://c/t?account_name=account", "abfss://c@account.dfs.core.windows.net/t"),
    ],
)
def test_a_bucket_has_one_name(spelling, name, monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert canonical(spelling) == name
    assert canonical(name) == name


def test_a_container_without_account_takes_it_from_the_environment(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert same_place("az://c/t", "abfss://c@account.dfs.core.windows.net/t")


def test_a_plain_path_is_taken_to_the_letter_and_a_url_is_decoded(tmp_path):
    assert canonical(tmp_path / "a%20b") == f"file://{tmp_path}/a%2520b"
    assert canonical(f"file://{tmp_path}/a%20b") == canonical(tmp_path / "a b") == f"file://{tmp_path}/a%20b"
    assert canonical(str(tmp_path / "what?#")) == f"file://{tmp_path}/what%3F%23"


@pytest.mark.parametrize(
    ("a", "b"), [("s3://b/t", "s3://b/t2"), ("s3://b/t", "gs://b/t"), ("s3://b/t", "s3://c/t"), ("/a", "/b")]
)
def test_other_places_are_other_places(a, b):
    assert not same_place(a, b)


def test_one_bucket_name_on_two_servers_is_two_places():
    assert not same_place("s3://b/t?endpoint=http://one", "s3://b/t?endpoint=http://two")
    assert same_place("s3://b/t?endpoint=http://one/", "s3a://b/t/?endpoint=http://one")


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "hdfs://host/t",
        "s3:/b/t",
        "s3://",
        "s3:///t",
        "s3://b:9000/t",
        "s3://key:hidden@b/t",
        "s3://b/../t",
        "s3://b/a%2Fb",
        "s3://b/a%00b",
        "s3://b/a#b",
        "az://c@host/t",
        "file:t",
        "file://host/t",
        "nul\0",
        "line\nbreak",
    ],
)
def test_what_is_no_place_is_refused_in_words(bad):
    with pytest.raises(InputError) as caught:
        canonical(bad)
    assert "hidden" not in str(caught.value)


def test_options_that_cannot_work_are_refused_and_keys_are_not_shown(tmp_path):
    with pytest.raises(ConfigError, match="no options"):
        open_store(tmp_path, region="x")
    with pytest.raises(ConfigError, match="twice"):
        open_store("s3://b/t?region=a&region=b")
    with pytest.raises(ConfigError, match="nonsense") as caught:
        open_store("s3://b/t?secret_access_key=hidden", nonsense="1").get("x")
    assert "hidden" not in str(caught.value)


segments = st.lists(
    st.text(st.characters(exclude_categories=["C"], exclude_characters="/"), min_size=1, max_size=6), max_size=4
)


@given(segments)
def test_a_canonical_name_is_its_own_canonical_name(parts):
    parts = [*parts, "end"]  # a blank at the end of an address is refused
    for name in (canonical("/" + "/".join(parts)), canonical(os.path.join("/tmp", *parts))):
        assert canonical(name) == name
