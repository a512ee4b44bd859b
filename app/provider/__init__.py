"""Model providers: one package per wire format, their shared parts in `wire/`, the catalogue of models in `models/`.

Begin at `base.py` (what the agent asks and what a model streams back) and `registry.py` (which adapter serves a model). Models
are called from here only.
"""
