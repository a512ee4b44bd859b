"""What the server tells of itself: `bus/` to clients, as events of the record; `telemetry/` to whoever runs it.

Begin at `bus/memory.py` (events on their way to the clients of this process) and `telemetry/observer.py` (what is told of a
turn). Both import `app.schema` and `app.util` alone; what is committed, and announced thereby, is in `app.record`.
"""
