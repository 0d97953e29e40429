"""Prometheus metrics of the server, and of each tenant.

Labels are route templates, statuses, models and token types; never a tenant, an id or a path.
The number of model labels is bounded.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

from convo.history.items import Json

PROMETHEUS_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
disable_created_metrics()  # type: ignore[no-untyped-call]  # creation times would double the number of series

MAX_MODEL_LABELS = 200
OTHER_MODELS_LABEL = "others"
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """The metrics of the server, or of one tenant.

    process:  include metrics of the process: memory, processor time, open files
    """

    def __init__(self, *, process: bool = True) -> None:
        self._registry = registry = CollectorRegistry()
        if process:
            ProcessCollector(registry=registry)
        self._requests = Counter("convo_requests", "HTTP requests.", ["method", "route", "status"], registry=registry)
        self._latency = Histogram(
            "convo_request_seconds", "Seconds from a request to the end of its response.", ["route"],
            registry=registry, buckets=LATENCY_BUCKETS_S,
        )  # fmt: skip
        self._first_event_latency = Histogram(
            "convo_first_event_seconds", "Seconds from a request to the first event of its response.", ["route"],
            registry=registry, buckets=LATENCY_BUCKETS_S,
        )  # fmt: skip
        self._store_seconds: Histogram | None = None
        self._store_bytes: Gauge | None = None
        self._open_streams = Gauge("convo_streams_open", "Open streams.", registry=registry)
        self._tokens = Counter("convo_tokens", "Tokens that models reported.", ["model", "kind"], registry=registry)
        self._store_faults = Counter(
            "convo_store_errors", "Requests that failed because of the store.", registry=registry
        )
        self._model_labels: set[str] = set()

    def record_request(self, method: str, route: str, status: int, duration_s: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._latency.labels(route).observe(duration_s)

    def record_first_event(self, route: str, after_s: float) -> None:
        self._first_event_latency.labels(route).observe(after_s)

    def record_response(self, response: Json) -> None:
        """Count the tokens of a response that has ended."""
        usage = response.get("usage")
        if not usage:
            return
        model = self._label_for(str(response.get("model")))
        for kind, tokens in count_tokens_by_kind(usage).items():
            self._tokens.labels(model, kind).inc(tokens)

    def add_open_streams(self, delta: int) -> None:
        self._open_streams.inc(delta)

    def record_store_fault(self) -> None:
        self._store_faults.inc()

    def record_store_duration(self, duration_s: float) -> None:
        """Count one transaction of the store."""
        if self._store_seconds is None:
            self._store_seconds = Histogram(
                "convo_store_seconds", "Seconds of a store transaction, including the wait before its start.",
                registry=self._registry, buckets=LATENCY_BUCKETS_S,
            )  # fmt: skip
        self._store_seconds.observe(duration_s)

    def set_store_size(self, size: int) -> None:
        if self._store_bytes is None:
            self._store_bytes = Gauge(
                "convo_store_bytes",
                "Bytes of the store on disk, at most a minute old.",
                registry=self._registry,
            )
        self._store_bytes.set(size)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def _label_for(self, model: str) -> str:
        if len(self._model_labels) < MAX_MODEL_LABELS:
            self._model_labels.add(model)
        return model if model in self._model_labels else OTHER_MODELS_LABEL


class CombinedMetrics:
    """Records to the metrics of the server and of one tenant."""

    def __init__(self, *metrics: Metrics) -> None:
        self._metrics = metrics

    def record_request(self, method: str, route: str, status: int, duration_s: float) -> None:
        for metrics in self._metrics:
            metrics.record_request(method, route, status, duration_s)

    def record_first_event(self, route: str, after_s: float) -> None:
        for metrics in self._metrics:
            metrics.record_first_event(route, after_s)

    def record_response(self, response: Json) -> None:
        for metrics in self._metrics:
            metrics.record_response(response)

    def add_open_streams(self, delta: int) -> None:
        for metrics in self._metrics:
            metrics.add_open_streams(delta)

    def record_store_fault(self) -> None:
        for metrics in self._metrics:
            metrics.record_store_fault()


def count_tokens_by_kind(usage: Json) -> dict[str, int]:
    """Return the tokens by kind; cached ones are part of the input, reasoning ones of the output."""
    input_details, output_details = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return {
        "input": usage.get("input_tokens") or 0,
        "cached": input_details.get("cached_tokens") or 0,
        "output": usage.get("output_tokens") or 0,
        "reasoning": output_details.get("reasoning_tokens") or 0,
    }
