"""OpenTelemetry spans of transactions: ``pip install 'lakelatch[tracing]'`` and call `enable` once.

    lakelatch.run            a write with all of its attempts
    lakelatch.transaction    one attempt; the user's work in the block happens inside it
    lakelatch.wait           until a transaction that goes first has ended
    lakelatch.write          data files
    lakelatch.lock           waiting for the table's lock
    lakelatch.append         reads the log to its head, decides, appends the commit entry
    lakelatch.merge          one round of merging again what others changed
    lakelatch.publish        the instant, for Hudi's readers

Tracing is off by default; a step then costs one call.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from .errors import ConfigError, LakeLatchError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

_NOTHING = nullcontext()
_TOLD = ("winner", "rule")  # details of an error that become attributes


class _Current:
    tracer: Tracer | None = None


_current = _Current()


def enable(provider: TracerProvider | None = None) -> None:
    """Start making spans of this process's transactions.

    Args:
        provider: OpenTelemetry's; None for the global one. It decides where spans go.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as e:
        raise ConfigError("tracing needs opentelemetry-api; run pip install 'lakelatch[tracing]'") from e
    _current.tracer = trace.get_tracer("lakelatch", tracer_provider=provider)


def disable() -> None:
    """Stop making spans. Open ones still end normally."""
    _current.tracer = None


def step(name: str, **facts: str) -> AbstractContextManager[object]:
    """Return a span around a block, inside the current one. It records no errors: some only send a commit into another round."""
    if _current.tracer is None:
        return _NOTHING
    return _current.tracer.start_as_current_span(
        f"lakelatch.{name}", attributes=_named(facts), record_exception=False, set_status_on_exception=False
    )


class Trace:
    """The span of one attempt, from here to `end`. It is never exported if the process dies before `end`."""

    def __init__(self, **facts: str) -> None:
        tracer = _current.tracer
        self._span: Span | None = None
        if tracer is not None:
            self._span = tracer.start_span("lakelatch.transaction", attributes=_named(facts))

    def within(self) -> AbstractContextManager[object]:
        """Return a context that makes it the current span."""
        if self._span is None:
            return _NOTHING
        from opentelemetry.trace import use_span

        return use_span(self._span, record_exception=False, set_status_on_exception=False)

    def tell(self, **facts: str | int) -> None:
        """Set attributes."""
        if self._span is not None:
            self._span.set_attributes(_named(facts))

    def failed(self, error: BaseException) -> None:
        """Record the error with which the attempt ends without a commit."""
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        if isinstance(error, LakeLatchError):
            self.tell(**{name: str(error.details[name]) for name in _TOLD if name in error.details})
        self._span.record_exception(error)
        self._span.set_status(StatusCode.ERROR, type(error).__name__)

    def end(self, outcome: str) -> None:
        """End the span: ``committed``, ``aborted``, ``left`` to others who execute the same plan, or ``unknown``."""
        if self._span is not None:
            self.tell(outcome=outcome)
            self._span.end()


def _named(facts: dict[str, str] | dict[str, str | int]) -> dict[str, str | int]:
    return {f"lakelatch.{name}": value for name, value in facts.items()}
