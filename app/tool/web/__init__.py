"""Helpers of what sends requests: permitted addresses, connections to checked addresses, conversion of HTML."""
