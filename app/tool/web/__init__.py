"""Helpers of webfetch: permitted addresses, conversion of HTML."""
