from starlette.datastructures import Headers

from app.api.request_headers import headers_of

SENT = [(b"host", b"one"), (b"accept", b"a"), (b"x-name", b"\xe9"), (b"accept", b"b")]


def test_headers_are_found_as_starlette_finds_them() -> None:
    scope = {"type": "http", "headers": SENT}
    found, expected = headers_of(scope), Headers(raw=SENT)
    for name in ("host", "Host", "ACCEPT", "x-name", "missing"):
        assert (name in found, found.get(name), found.get(name, "-")) == (
            name in expected,
            expected.get(name),
            expected.get(name, "-"),
        )
    assert found["accept"] == "a" and found.getlist("accept") == ["a", "b"]
    assert found == expected


def test_the_headers_of_a_request_are_read_once() -> None:
    scope = {"type": "http", "headers": SENT}
    assert headers_of(scope) is headers_of(scope)
