# Generated from _async/__init__.py by `make openapi`.
