"""OpenTelemetry spans of transactions: ``pip install 'lakelatch[tracing]'`` and call `enable` once.

    lakelatch.run            a write with all of its attempts
    lakelatch.transaction    one attempt; what its user does in the block happens inside it
    lakelatch.wait           until somebody else has ended who goes first
    lakelatch.write          data files
    lakelatch.lock           waiting for the table's lock
    lakelatch.append         reads the log to its head, decides, appends the commit entry
    lakelatch.merge          one round of merging again what others have changed
    lakelatch.publish        the instant, for Hudi's readers

Off, as it is unless somebody asks for it, a step costs one call.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from .errors import ConfigError, LakeLatchError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

_NOTHING = nullcontext()
_TOLD = ("winner", "rule")  # of what an error knows


class _Current:
    tracer: Tracer | None = None


_current = _Current()


def enable(provider: TracerProvider | None = None) -> None:
    """Make spans of this process's transactions from now on.

    Args:
        provider: of OpenTelemetry; None for the one that is set globally, which decides where spans go.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as e:
        raise ConfigError("tracing needs opentelemetry-api; run pip install 'lakelatch[tracing]'") from e
    _current.tracer = trace.get_tracer("lakelatch", tracer_provider=provider)


def disable() -> None:
    """Make no more spans. Those that have begun end as they would have."""
    _current.tracer = None


def step(name: str, **facts: str) -> AbstractContextManager[object]:
    """A span around a block, inside the current one. Not every error in it is one: some only send a commit round again."""
    if _current.tracer is None:
        return _NOTHING
    return _current.tracer.start_as_current_span(
        f"lakelatch.{name}", attributes=_named(facts), record_exception=False, set_status_on_exception=False
    )


class Trace:
    """The span of one attempt, from here to `end`. One that its process does not live to end is never seen."""

    def __init__(self, **facts: str) -> None:
        tracer = _current.tracer
        self._span: Span | None = None
        if tracer is not None:
            self._span = tracer.start_span("lakelatch.transaction", attributes=_named(facts))

    def within(self) -> AbstractContextManager[object]:
        """Around what belongs to it."""
        if self._span is None:
            return _NOTHING
        from opentelemetry.trace import use_span

        return use_span(self._span, record_exception=False, set_status_on_exception=False)

    def tell(self, **facts: str | int) -> None:
        """What is known of it by now."""
        if self._span is not None:
            self._span.set_attributes(_named(facts))

    def failed(self, error: BaseException) -> None:
        """Why it ends without landing."""
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        if isinstance(error, LakeLatchError):
            self.tell(**{name: str(error.details[name]) for name in _TOLD if name in error.details})
        self._span.record_exception(error)
        self._span.set_status(StatusCode.ERROR, type(error).__name__)

    def end(self, outcome: str) -> None:
        """It is over: ``committed``, ``aborted``, ``left`` to others who execute the same plan, or ``unknown``."""
        if self._span is not None:
            self.tell(outcome=outcome)
            self._span.end()


def _named(facts: dict[str, str] | dict[str, str | int]) -> dict[str, str | int]:
    return {f"lakelatch.{name}": value for name, value in facts.items()}
