"""What the server says about itself to its operator: metrics for Prometheus, traces for OpenTelemetry, log lines as JSON.

Begin at `observer.py`, the interface. `telemetry.py` opens what the settings ask for, and imports nothing else. `app.providers`
reports model calls, `app.api` the HTTP requests.
"""
