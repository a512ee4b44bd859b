"""How many values a text may have, and that to count them takes no longer than to read it."""

import time

import pytest

from app.util.bounds import has_more_values

MANY = b"[" + b"0," * 100
IN_STRING = b'["' + b"," * 100 + b'","'


@pytest.mark.parametrize(
    ("body", "has_more"),
    [
        (MANY + b"0]", True),
        (b'{"a": [' + b'",[{", ' * 40 + b'"\\",", 1]}', False),
        (IN_STRING + b'\\"' * 2**16, False),
        (IN_STRING + b'\\"' * 2**16 + b"\\", False),
        (IN_STRING + b"," * 2**20, False),
    ],
)
def test_values_are_counted_outside_of_strings_in_the_time_of_reading(body: bytes, has_more: bool) -> None:
    began = time.monotonic()
    assert has_more_values(body, 99) is has_more
    assert time.monotonic() - began < 1
