"""Questions of the model to a person. Begin at `service.py`; how a request waits for its answer is in `app.pending`."""
