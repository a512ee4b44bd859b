"""Questions that the model asks the user. Begin at `service.py`; waiting for the answer is in `app.permissions.pending`."""
