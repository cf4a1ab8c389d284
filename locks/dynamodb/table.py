"""Requests to one DynamoDB table, with time limits and retries; creates the table on demand.

Every write of the locks is conditional and may be sent twice: after an answer that got lost the second one fails its
condition, and the item, which comes back then, shows whose write it holds. So this module retries every
request without an answer, reports that (``doubt``), and leaves the interpretation to backend.py.
"""

from __future__ import annotations

import functools
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import botocore.loaders
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    UnknownRegionError,
)

from ...environment import Environment, Process
from ...errors import ConfigError, LockError, LockUnavailableError
from ..core import Capacity

_log = logging.getLogger("lakelatch.locks")

CREATE_S_MAX = 60.0  # for a new table to become active; some seconds are usual
_PAUSE_S, _PAUSE_S_MAX = 0.02, 0.5
_WRITE_S = 0.01  # until it has been measured
_SILENT_MAX = 3  # requests without any answer; each may take its full time
_ANSWER_S = (0.25, 5.0)  # how long one request may take, at least and at most
_THROTTLED = {"ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "RequestLimitExceeded"}
_REFUSED = {
    "AccessDeniedException": "grant dynamodb:GetItem and dynamodb:UpdateItem on the table (and CreateTable and "
    "DescribeTable, unless it is made beforehand)",
    "UnrecognizedClientException": "check AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN or the profile",
    "InvalidSignatureException": "check AWS_SECRET_ACCESS_KEY, and this machine's clock",
    "IncompleteSignatureException": "check the credentials",
    "MissingAuthenticationTokenException": "check the credentials",
    "ExpiredTokenException": "get new credentials",
}
_Item = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one update: ``done`` or not, the item as it is now, and ``doubt`` if an earlier try got no answer."""

    done: bool
    item: _Item | None
    doubt: bool = False


class Table:
    """Requests to one table.

    Makes its client when it is first used, and a new one in a child of fork.
    """

    def __init__(
        self, region: str, name: str, *, endpoint: str | None, create: bool, lease_s: float, env: Environment,
        like: Any = None,
    ) -> None:  # fmt: skip
        self.requests = 0
        self.capacity = Capacity(lease_s, _WRITE_S)
        self._region = region
        self._name = name
        self._endpoint = endpoint
        self._create = create
        self._like = like  # a user's client, whose region, endpoint and credentials are ours then
        # Several requests must fit between two renewals.
        self._answer_s = min(max(lease_s / 6, _ANSWER_S[0]), _ANSWER_S[1])
        self._env = env
        self._client: Any = None
        self._process: Process | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle addresses only."""
        if self._like is not None:
            raise ConfigError("Locks on a client of boto3 cannot be sent to another process; open them by URL there")
        return {**self.__dict__, "_client": None, "_process": None}

    def __str__(self) -> str:
        return f"DynamoDB table {self._name!r} at {self._endpoint or self._region}"

    def read(self, key: str) -> _Item | None:
        """Read the current item, never an older copy."""
        found = self._send("get_item", Key={"key": {"S": key}}, ConsistentRead=True).item
        return found or None

    def update(
        self, key: str, expression: str, condition: str, values: dict[str, Any], *, want: bool = False
    ) -> Answer:
        """Change the item if ``condition`` holds; ``want`` brings the new item. Texts become S and integers N.

        An answer that is not done always brings the item as it is (None: there is none).
        """
        more: dict[str, Any] = {"ConditionExpression": condition} if condition else {}
        if "#key" in condition:
            more["ExpressionAttributeNames"] = {"#key": "key"}
        began = self._env.monotonic()
        answer = self._send(
            "update_item",
            Key={"key": {"S": key}},
            UpdateExpression=expression,
            ExpressionAttributeValues={name: _typed(value) for name, value in values.items()},
            ReturnValues="ALL_NEW" if want else "NONE",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **more,
        )
        self.capacity.took(self._env.monotonic() - began)
        if answer.done or answer.item:
            return answer
        # There is no item, or an emulator that does not return it.
        return Answer(False, self.read(key), answer.doubt)

    def close(self) -> None:
        """Close the connections; a request after this opens them again, because leases outlive their provider."""
        client, self._client = self._client, None
        if client is not None and self._process == self._env.process():
            client.close()

    def _send(self, operation: str, **request: Any) -> Answer:
        """Send until there is an answer, for about twice the time that one request may take."""
        budget_s = 1.5 * self._answer_s  # a request that ran out of time is repeated once
        until = self._env.monotonic() + budget_s
        doubt, tries, silent = False, 0, 0
        while True:
            tries += 1
            try:
                return Answer(True, self._once(operation, request), doubt)
            except ClientError as e:
                cause: Exception = e
                code = e.response["Error"]["Code"]
                if code == "ConditionalCheckFailedException":
                    return Answer(False, e.response.get("Item"), doubt)
                if code == "ResourceNotFoundException" and tries == 1:
                    self._make()
                    until = self._env.monotonic() + budget_s
                elif code not in _THROTTLED and e.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    self._refuse(e, code)
                doubt |= code not in _THROTTLED
            except BotoCoreError as e:
                cause = e
                doubt |= not isinstance(e, EndpointConnectionError | ConnectTimeoutError)
                code = ""
                silent += 1
            pause_s = self._env.random() * min(_PAUSE_S * 2**tries, _PAUSE_S_MAX)
            if silent == _SILENT_MAX or self._env.monotonic() + pause_s >= until:
                raise self._unavailable(cause, tries, throttled=code in _THROTTLED, doubt=doubt) from cause
            self._env.sleep(pause_s)

    def _once(self, operation: str, request: dict[str, Any]) -> _Item | None:
        try:
            client = self._connected()
            self.requests += 1
            answer = getattr(client, operation)(TableName=self._name, **request)
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as e:
            raise ConfigError(
                f"There are no AWS credentials for the {self}: {e}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "AWS_PROFILE, or give the machine a role. Nothing was locked",
                table=self._name,
            ) from e
        found: _Item | None = answer.get("Item") or answer.get("Attributes")
        return found

    def _connected(self) -> Any:
        process = self._env.process()
        if self._client is None or process != self._process:
            session = botocore.session.Session()
            session.register_component("data_loader", _loader())
            try:
                if self._like is None:
                    session.get_partition_for_region(self._region)
            except UnknownRegionError as e:
                raise ConfigError(
                    f"{self._region!r} is no AWS region; write dynamodb://eu-west-1/{self._name}", region=self._region
                ) from e
            config, options = self._config(session), {}
            if self._like is not None:
                # botocore has no public names for these; a refreshed token is seen by both clients.
                try:
                    session._credentials = self._like._request_signer._credentials
                    options["verify"] = getattr(self._like._endpoint.http_session, "_verify", None)
                except AttributeError as e:
                    raise ConfigError(
                        f"this botocore ({botocore.__version__}) does not show the credentials of a client ({e}). Install "
                        "'boto3>=1.34,<2', or name the table by a URL"
                    ) from e
                config = self._like.meta.config.merge(config)
            self._client = session.create_client(
                "dynamodb", region_name=self._region, endpoint_url=self._endpoint, config=config, **options
            )
            self._process = process
        return self._client

    def _config(self, session: botocore.session.Session) -> Config:
        return Config(
            connect_timeout=self._answer_s,
            read_timeout=self._answer_s,
            retries={"total_max_attempts": 1},  # repeating is decided here, by our clock
            tcp_keepalive=True,
            parameter_validation=False,
            user_agent=session.user_agent(),  # otherwise composed twice for each request
        )

    def _unavailable(
        self, cause: Exception, tries: int, *, throttled: bool = False, doubt: bool = False
    ) -> LockUnavailableError:
        what = "has no capacity left (throttled)" if throttled else "gives no answer"
        host = self._client.meta.endpoint_url if self._client else self._endpoint or self._region
        # The lock URL holds no secret, but the endpoint may come from the environment.
        host, said = (re.sub(r"//[^\s/@]*@", "//...@", str(each)) for each in (host, cause))
        place = "" if host in f"{self} {said}" else f" to {host}"
        said = said.replace(f': "{host}/"', "") if host in str(self) else said
        return LockUnavailableError(
            f"The {self} {what}: {tries} requests{place}, the last one ended with: {said}. "
            "Nothing is held; check the region, the endpoint and the network, or try again later",
            table=self._name, host=host, tries=tries, throttled=throttled, doubt=doubt,
        )  # fmt: skip

    def _refuse(self, error: ClientError, code: str) -> NoReturn:
        """Raise the error that says what to do about a definite refusal."""
        said = error.response["Error"].get("Message", code)
        if code in _REFUSED:
            raise ConfigError(
                f"AWS refuses requests to the {self} ({code}: {said}). Nothing was changed by this request; "
                f"{_REFUSED[code]}",
                table=self._name, code=code,
            ) from error  # fmt: skip
        if code == "ValidationException":
            with suppress(ClientError, BotoCoreError):
                self._check_schema()
        raise LockError(f"The {self} refused a request ({code}: {said})", table=self._name, code=code) from error

    def _check_schema(self) -> None:
        """Raise `ConfigError` unless the table's key is a text attribute named key, and nothing else."""
        table = self._connected().describe_table(TableName=self._name)["Table"]
        types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
        found = [(each["AttributeName"], each["KeyType"], types[each["AttributeName"]]) for each in table["KeySchema"]]
        if found != [("key", "HASH", "S")]:
            shown = ", ".join(f"{name} ({kind}, type {type_})" for name, kind, type_ in found)
            raise ConfigError(
                f"The {self} cannot hold locks: its key is {shown}, and it must be one partition key named 'key' of "
                "type S. Use another table, or delete this one if it is not needed",
                table=self._name, schema=shown,
            )  # fmt: skip

    def _make(self) -> None:
        """Make sure that the table exists, is active, and has the right key."""
        if not self._create:
            raise ConfigError(
                f"There is no {self}, and create=0 forbids to make it. Make it with the partition key 'key' (S), or "
                "check table and region",
                table=self._name,
            )
        _log.warning("%s is not there; it is made now", self)
        try:
            self._make_and_wait(self._connected())
            self._check_schema()
        except ClientError as e:
            code = e.response["Error"]["Code"]
            if code in _THROTTLED or e.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                raise self._unavailable(e, 1, throttled=code in _THROTTLED) from e
            self._refuse(e, code)
        except BotoCoreError as e:
            raise self._unavailable(e, 1) from e

    def _make_and_wait(self, client: Any) -> None:
        until = self._env.monotonic() + CREATE_S_MAX
        with suppress(client.exceptions.ResourceInUseException):  # another process is creating it
            client.create_table(
                TableName=self._name,
                KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        while client.describe_table(TableName=self._name)["Table"]["TableStatus"] != "ACTIVE":
            if self._env.monotonic() >= until:
                raise LockUnavailableError(
                    f"The {self} was made and is not active after {CREATE_S_MAX:g} s. Nothing is held; try again",
                    table=self._name,
                )
            self._env.sleep(0.25)


@functools.cache
def _loader() -> Any:
    """Return the service's description, parsed once in a process: nine tenths of the time that a client takes to make."""
    return botocore.loaders.create_loader()


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, list):
        return {"L": [_typed(each) for each in value]}
    return {"S": value}
