"""What the server tells of itself: metrics for Prometheus, traces for OpenTelemetry, log lines as JSON.

Begin at `observer.py`: what is told, and to whom. `telemetry.py` opens what the settings ask for; nothing else of this package is
imported without being asked for. What a model call is told of is in `app.providers`, the HTTP requests in `app.api`.
"""
