"""The same table is the same key, however spelled, and different tables stay different."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InputError
from lakelatch.locks.lock_url import normal_key
from lakelatch.storage.location import canonical

SEGMENT = st.text(
    st.characters(codec="utf-8", exclude_characters="/%?#", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8
).filter(lambda text: text not in (".", "..") and text == unicodedata.normalize("NFC", text.strip()))
SEGMENTS = st.lists(SEGMENT, min_size=1, max_size=4)


@pytest.mark.parametrize(
    "spellings",
    [
        ["s3://bucket/t", "s3a://bucket/t", "S3N://bucket//t/", " s3://bucket/x/../t", "s3://bucket/./t?region=x"],
        ["/no/such/t", "file:/no/such/t", "file:///no/such/t/", "FILE://localhost/no//such/./t", " /no/such/x/../t"],
        ["gs://b/t", "gcs://b/t/"],
        [
            "abfss://c@acct.dfs.core.windows.net/t",
            "abfs://c@ACCT.dfs.core.windows.net/t/",
            "abfss://c@acct.blob.core.windows.net//t",
        ],
        ["az://c/t", "azure://c/t", "abfs://c/t"],
        ["s3://b/caf\u00e9", "s3://b/cafe\u0301", "s3://b/caf%C3%A9"],
        ["caf\u00e9", "cafe\u0301", "\tcafe\u0301\n"],
        ["flights", " flights "],
    ],
)
def test_one_table_is_one_key(spellings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert len({normal_key(spelling) for spelling in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://Bucket/t", "s3://bucket/t"),
        ("s3://b/T", "s3://b/t"),
        ("s3://b/t", "gs://b/t"),
        ("s3://b/t", "s3://b/t2"),
        ("/a%20b", "/a b"),
        ("s3://b/t%20", "s3://b/t"),
        ("flights", "Flights"),
        ("contract/a", "contract//a"),
        ("hdfs://node/t", "hdfs://node/t/"),
    ],
)
def test_what_differs_stays_different(one: str, other: str) -> None:
    assert normal_key(one) != normal_key(other)


def test_a_link_to_a_table_is_the_table(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    assert normal_key(f"{tmp_path}/link") == normal_key(f"file://{tmp_path}/table/")


def test_the_key_of_a_table_is_the_name_that_storage_gives_it() -> None:
    for url in ("s3a://b/x/../t/", "/no/such/t", "file:/no/such/a b", "gs://b/t"):
        assert normal_key(url) == normal_key(canonical(url)) == canonical(url)


@pytest.mark.parametrize(
    "key", ["s3://", "s3://b/../../c", "file://host/x", "file:///a#b", "az://c@elsewhere/t", "/a\0b", "s3://b/t "]
)
def test_an_address_that_means_nothing_is_refused(key: str) -> None:
    with pytest.raises(InputError):
        normal_key(key)


@given(
    st.text(max_size=40)
    | st.text("/.a%é?", max_size=12).map("s3://b/{}".format)
    | st.text("/.a%é?", max_size=12).map("/{}".format)
)
def test_once_is_enough(key: str) -> None:
    try:
        once = normal_key(key)
    except InputError:
        return
    assert normal_key(once) == once


@given(SEGMENTS, st.sampled_from(["s3", "gs", "file"]), st.data())
def test_spelling_changes_nothing(segments: list[str], kind: str, data: st.DataObject) -> None:
    spelled = "/".join(
        segment + data.draw(st.sampled_from(["", "/", "/.", "/x/.."])) for segment in ["no-such-place", *segments]
    )
    scheme = data.draw(
        st.sampled_from({"s3": ["s3", "s3a", "S3N"], "gs": ["gs", "gcs"], "file": ["file", "FILE"]}[kind])
    )
    place = "//" if kind == "file" else "//bucket"
    plain = f"{kind}:{place}/no-such-place/{'/'.join(segments)}"
    assert normal_key(f"{scheme}:{place}/{spelled}") == normal_key(plain)


@given(SEGMENTS, SEGMENTS, st.sampled_from(["s3://b/no-such-place", "/no-such-place", "file:///no-such-place"]))
def test_different_tables_have_different_keys(one: list[str], other: list[str], root: str) -> None:
    keys = [normal_key("/".join([root, *segments, "end"])) for segments in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
