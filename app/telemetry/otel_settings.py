"""What the standard variables `OTEL_…` ask for. https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/"""

from collections.abc import Mapping

DEFAULT_SERVICE = "opensession"
_CAPTURING = frozenset({"true", "span_only", "span_and_event"})


def wants_traces(environ: Mapping[str, str]) -> bool:
    """A collector or an exporter is named. Whoever names nothing gets none, though the SDK would try localhost."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exporter == "otlp" or (exporter == "" and any(environ.get(name) for name in endpoints))


def wants_contents(environ: Mapping[str, str]) -> bool:
    return environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower() in _CAPTURING


def service_name(environ: Mapping[str, str]) -> str:
    """What is given here would be stronger than the variables, so it repeats them."""
    if name := environ.get("OTEL_SERVICE_NAME"):
        return name
    attributes = dict(pair.split("=", 1) for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",") if "=" in pair)
    return attributes.get("service.name", "").strip() or DEFAULT_SERVICE
