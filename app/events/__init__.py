"""What the server says about itself: `bus/` to clients, as events of the record; `telemetry/` to its operator.

Begin at `bus/memory.py` (events on their way to the clients of this process) and `telemetry/observer.py` (the observers of a
turn). Both import only `app.schema` and `app.util`; `app.record` commits changes, and thereby announces events.
"""
