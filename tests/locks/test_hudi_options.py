"""Hudi's lock options as another spelling of a lock URL, and the keys that Hudi derives from a path."""

from __future__ import annotations

import pytest

from lakelatch.errors import ConfigError
from lakelatch.locks.hudi import PREFIX, PROVIDERS, implicit_key, lock_url, table_settings
from lakelatch.locks.lock_url import parse_lock_url

BASE = "s3://my-bucket/my_lake/my_table"
HASH = "C0E15D0CE1AD11CC"  # the literal that Hudi's own test pins for this path
ZOOKEEPER = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
IMPLICIT_ZOOKEEPER = "org.apache.hudi.client.transaction.lock.ZookeeperBasedImplicitBasePathLockProvider"
DYNAMODB = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"
IMPLICIT_DYNAMODB = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider"
STORAGE = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
FILE = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"


def options(provider: str = "", **given: str) -> dict[str, str]:
    names = {PREFIX + name.replace("__", "."): value for name, value in given.items()}
    return names | ({PREFIX + "provider": provider} if provider else {})


@pytest.mark.parametrize("path", [BASE, "s3a://my-bucket/my_lake/my_table", "S3A://my-bucket/my_lake/my_table"])
def test_the_implicit_key_is_hudis(path: str) -> None:
    assert implicit_key(path) == HASH


def test_a_final_slash_is_another_implicit_key() -> None:
    assert implicit_key(BASE + "/") != HASH


@pytest.mark.parametrize(
    ("given", "base", "url"),
    [
        (
            options(ZOOKEEPER, zookeeper__url="a:2181,b:2182", zookeeper__base_path="/hudi", zookeeper__lock_key="k 1"),
            BASE,
            "zk://a:2181,b:2182/hudi?key=k%201",
        ),
        (
            options(zookeeper__url="a,b/root/", zookeeper__base_path="hudi/", zookeeper__port="2181"),
            BASE,
            "zk://a,b/root/hudi?key=trips",
        ),
        (
            options(IMPLICIT_ZOOKEEPER, zookeeper__url="a:1", zookeeper__session_timeout_ms="20000"),
            BASE,
            f"zk://a:1/tmp/{HASH}?key=lock_key&session=20s",
        ),
        (options(DYNAMODB), BASE, "dynamodb://us-east-1/hudi_locks?key=trips"),
        (
            options(
                DYNAMODB, dynamodb__table="t", dynamodb__region="eu-west-1", dynamodb__partition_key="p",
                dynamodb__endpoint_url="http://127.0.0.1:8000", wait_time_ms="90000",
                dynamodb__billing_mode="PROVISIONED", dynamodb__read_capacity="5",
            ),
            BASE,
            "dynamodb://eu-west-1/t?key=p&endpoint=http://127.0.0.1:8000&create=0&lease=90s",
        ),
        (
            options("DynamoDBBasedImplicitPartitionKeyLockProvider", dynamodb__region="r"),
            BASE,
            f"dynamodb://r/hudi_locks?key={HASH}",
        ),
        (options(STORAGE), "s3a://b/lake/t/", "s3://b/lake/t?layout=hudi"),
        (
            options(STORAGE, storage__validity__timeout__secs="300", storage__renew__interval__secs="30"),
            "abfss://c@acct.dfs.core.windows.net/t",
            "az://c/t?account_name=acct&layout=hudi&lease=5m",
        ),
        (options(FILE), "file:///data/t", "file:///data/t/.hoodie?jvm=lock"),
        (
            options(FILE, filesystem__path="/lo cks", filesystem__expire="5"),
            "/data/t",
            "file:///lo%20cks?jvm=lock&jvm_expire=5m",
        ),
        (options(IN_PROCESS), BASE, "memory://hudi"),
    ],
)  # fmt: skip
def test_options_become_the_url_of_the_same_lock(given: dict[str, str], base: str, url: str) -> None:
    found = table_settings(given, table_name="trips", base_path=base, environ={})["lock"]
    assert found == url
    parse_lock_url(found, options=("session", "endpoint", "create", "layout", "account_name", "jvm", "jvm_expire"))


@pytest.mark.parametrize("provider", [FILE, STORAGE, IN_PROCESS, DYNAMODB, ZOOKEEPER])
def test_the_url_opens_where_its_client_is_installed(provider: str) -> None:
    from lakelatch.locks import open_provider

    given = options(provider)
    if provider == ZOOKEEPER:
        given |= options(zookeeper__url="127.0.0.1:1", zookeeper__base_path="/hudi")
    base = "/data/t" if provider == FILE else BASE
    with open_provider(lock_url(given, table_name="trips", base_path=base)) as locks:
        assert locks.url


def test_the_region_comes_from_the_environment_as_it_does_for_hudi() -> None:
    found = table_settings(options(DYNAMODB), table_name="t", base_path=BASE, environ={"AWS_REGION": "eu-north-1"})
    assert found["lock"] == "dynamodb://eu-north-1/hudi_locks?key=t"


def test_path_and_name_can_be_given_as_the_jvm_spells_them() -> None:
    given = options(IMPLICIT_DYNAMODB, dynamodb__region="r") | {"hoodie.base.path": BASE, "hoodie.table.name": "x"}
    assert lock_url(given, table_name="trips", base_path="file:///elsewhere").endswith(f"key={HASH}")


def test_wait_and_strategy_become_settings_and_pacing_has_no_counterpart() -> None:
    given = options(
        IN_PROCESS, wait_time_ms="30000", client__num_retries="50", num_retries="15",
        conflict__resolution__strategy="org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy",
    )  # fmt: skip
    found = table_settings(given, table_name="t", base_path=BASE)
    assert found == {"lock": "memory://hudi", "lock_wait_s": 30.0, "strategy": "simple"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            options("org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"),
            "Hive Metastore locks are not",
        ),
        (options("com.example.Mine"), "Known are .*ZookeeperBasedLockProvider, .*InProcessLockProvider"),
        (
            options(DYNAMODB, dynamodb__tabel="x"),
            "DynamoDBBasedLockProvider does not have: .*tabel. It has .*dynamodb.table",
        ),
        (options(FILE, zookeeper__url="a"), "FileSystemBasedLockProvider does not have: .*zookeeper.url"),
        ({"hoodie.wirte.lock.provider": FILE}, "does not have: hoodie.wirte"),
        (options(ZOOKEEPER, zookeeper__base_path="/x"), "zookeeper.url is missing"),
        (options(ZOOKEEPER, zookeeper__url="a"), "zookeeper.base_path is missing"),
        (options(IMPLICIT_ZOOKEEPER, zookeeper__url="a", zookeeper__port="2182"), "Hudi ignores .*write it into"),
        (options(FILE, filesystem__path="/x", filesystem__expire="soon"), "not a whole number"),
        (options(FILE), "no folder of a local file system"),
        (options(STORAGE) | {"hoodie.base.path": "/data/t"}, "needs a table on an object store"),
        (options(DYNAMODB, dynamodb__billing_mode="FREE"), "neither PAY_PER_REQUEST"),
        (options(IN_PROCESS, conflict__resolution__strategy="x.Mine"), "no conflict strategy"),
    ],
)
def test_what_is_not_known_is_refused_with_a_list_of_what_is(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lock_url(given, table_name="trips", base_path=BASE)


def test_every_provider_that_is_listed_is_mapped() -> None:
    for provider in PROVIDERS:
        base = "/data/t" if provider == FILE else BASE
        needed = options(zookeeper__url="a", zookeeper__base_path="/b") if provider == ZOOKEEPER else {}
        needed |= options(zookeeper__url="a") if provider == IMPLICIT_ZOOKEEPER else {}
        assert "://" in lock_url(options(provider) | needed, table_name="t", base_path=base)
