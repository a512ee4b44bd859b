"""Model providers: one package a wire format, what they share in `wire/`, which models there are in `models/`.

Begin at `base.py` (what the agent asks and what a model streams back) and `registry.py` (which adapter serves a model). The model
SDKs are imported here only.
"""
