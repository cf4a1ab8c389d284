"""The options of Hudi's writers beside ours: those that they need, and what is unsafe in those that they have."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.errors import ConfigError
from lakelatch.locks.hudi import hudi_options, lock_url
from lakelatch.occ.doctor.hudi_writers import STYLES, judge_writer, options_in, rendered, writer_options

URLS = [
    "zk://a:2181,b:2181/lake?key=flights",
    "zk://a:2181/lake?key=flights&session=20s",
    "dynamodb://eu-west-1/hudi_locks?key=flights",
    "file:///lake/flights/.hoodie?jvm=lock",
    "file:///lake/flights/.hoodie?jvm=lock&jvm_expire=5m",
    "s3://lake/flights?layout=hudi",
]


@pytest.mark.parametrize("url", URLS)
def test_the_options_of_a_lock_give_the_same_lock_again(url: str) -> None:
    again = lock_url(hudi_options(url), table_name="flights", base_path="s3://lake/flights")
    assert hudi_options(again) == hudi_options(url)
    assert again == url


@pytest.mark.parametrize("url", ["redis://h/0", "file:///lake/locks", "zk://a:2181/lake", "memory://x"])
def test_other_locks_have_none(url: str) -> None:
    with pytest.raises(ConfigError, match="No lock provider of Hudi takes"):
        hudi_options(url)


@pytest.fixture
def table(tmp_path):
    lock = f"file://{tmp_path}/flights/.hoodie?jvm=lock&jvm_expire=5m"
    with lakelatch.create(str(tmp_path / "flights"), record_key="id", lock=lock, neighbours="hudi") as made:
        yield made


@pytest.mark.parametrize("style", STYLES)
def test_what_is_printed_is_read_back_and_safe(table, style) -> None:
    wanted = writer_options(table.config, table.settings)
    assert options_in(rendered(wanted, style)) == wanted
    assert judge_writer(wanted, table.config, table.settings, table=table.url) == []


def test_a_writer_with_no_options_is_told_of_everything(table) -> None:
    kinds = {each.kind for each in judge_writer({}, table.config, table.settings, table=table.url)}
    assert kinds == {"jvm-single-writer", "jvm-eager", "jvm-metadata", "jvm-upgrade", "jvm-no-lock"}


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("hoodie.write.concurrency.mode", "SINGLE_WRITER", "jvm-single-writer"),
        ("hoodie.clean.failed.writes.policy", "EAGER", "jvm-eager"),
        ("hoodie.metadata.enable", "true", "jvm-metadata"),
        ("hoodie.index.type", "BLOOM", "jvm-index"),
        ("hoodie.index.type", "BUCKET", "jvm-index"),
        ("hoodie.write.lock.filesystem.path", "/elsewhere", "jvm-other-lock"),
        ("hoodie.write.lock.provider", "org.apache.hudi.client.transaction.lock.InProcessLockProvider", "jvm-lock"),
        ("hoodie.write.lock.provider", "com.example.Lock", "jvm-lock"),
    ],
)
def test_one_wrong_option_is_named_with_the_line_that_mends_it(table, key, value, kind) -> None:
    wanted = writer_options(table.config, table.settings)
    found = judge_writer(wanted | {key: value}, table.config, table.settings, table=table.url)
    assert [each.kind for each in found] == [kind]
    assert found[0].severity == "unsafe"
    assert found[0].mend.startswith(key) or kind == "jvm-lock"


def test_other_buckets_are_named(tmp_path) -> None:
    lock = f"file://{tmp_path}/t/.hoodie?jvm=lock"
    with lakelatch.create(str(tmp_path / "t"), record_key="id", lock=lock, neighbours="hudi", bucket_count=4) as table:
        wanted = writer_options(table.config, table.settings)
        (found, *_) = judge_writer(
            wanted | {"hoodie.bucket.index.num.buckets": "8"}, table.config, table.settings, table=table.url
        )
    assert (found.kind, found.mend) == ("jvm-buckets", "hoodie.bucket.index.num.buckets=4")
