"""Model providers: a module for each wire format, what formats share in `sdk_adapter.py`, the models in `catalogue.py`,
`connected.py` and `selection.py`.

Begin at `base.py` (the request to a model and what it streams back) and `registry.py` (which adapter serves a model). Only this
package calls models. `retry.py` decides whether a request is sent again, `shorten.py` what of a conversation is left out.
"""
