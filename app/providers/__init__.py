"""Model providers: a module for each wire format, the way to all of them in `sdk_adapter.py`, the models in `catalogue.py`,
`connected.py` and `selection.py`.

Begin at `base.py` (what the agent asks and what a model streams back) and `registry.py` (which adapter serves a model). Models
are called from here only.
"""
