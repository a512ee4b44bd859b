import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
from tool_host import FakeHost, run

from app.permissions.service import PermissionRejected
from app.tools import web
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.webfetch import MAX_BYTES, WebFetchTool
from app.tools.page_text import to_markdown, to_text
from app.tools.web import Address, PinnedRequests, is_public

LOOPBACK = ip_address("127.0.0.1")
Answer = Callable[["Seen"], bytes]


class Seen:
    """A request as the server received it."""

    def __init__(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        self.path = first.split(" ")[1]
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}


class Site:
    """A web server on loopback that answers each path with ready bytes, or with what a function makes of the request."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Answer] = {}
        self.seen: list[Seen] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            seen = Seen((await reader.readuntil(b"\r\n\r\n")).decode())
            self.seen.append(seen)
            page = self.pages.get(seen.path, answer(b"", status="404 Not Found"))
            writer.write(page(seen) if callable(page) else page)
            if page != SILENT:
                await writer.drain()
                writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    def url(self, path: str, host: str = "site.example") -> str:
        return f"http://{host}:{self.port}{path}"


SILENT = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nbeginning"


def answer(body: bytes, content_type: str | None = "text/plain", *, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(to: str) -> bytes:
    return answer(b"", status="302 Found", Location=to)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    async with server:
        yield site


class Resolver:
    """Every host, unless another address is `known` for it, is at the same addresses."""

    def __init__(self, *addresses: str, **known: str) -> None:
        self.asked: list[str] = []
        self._addresses, self._known = addresses, known

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        return [ip_address(self._known[host])] if host in self._known else [*map(ip_address, self._addresses)]


async def fetch(ctx: ToolContext, url: str, requests: PinnedRequests | None = None, **arguments: object) -> ToolResult:
    requests = requests or PinnedRequests(allow_private=True, resolve=Resolver("127.0.0.1"))
    return await run(WebFetchTool(requests), ctx, url=url, **arguments)


HTML = b"""<!doctype html><html><head><title>T</title><style>p{}</style></head><body><script>alert(1)</script>
<h1>Head</h1><p>One <b>two</b> &amp; <a href="/x">link</a></p><ul><li>a</li><li>b</li></ul></body></html>"""


class TestPages:
    @pytest.mark.parametrize(
        ("page", "wanted", "output"),
        [
            pytest.param(answer(HTML, "text/html"), "markdown", "# Head\n\nOne **two** & [link](/x)\n\n- a\n- b", id="markdown"),
            pytest.param(answer(HTML, "text/html"), "text", "Head\n\nOne two & link\n\na\n\nb", id="text"),
            pytest.param(answer(HTML, "text/html"), "html", HTML.decode(), id="as it is"),
            pytest.param(answer(b'{"a": "<b>"}', "application/json"), "markdown", '{"a": "<b>"}', id="no HTML"),
            pytest.param(answer(b'<meta charset="windows-1252"><p>\x80</p>', "text/html"), "markdown", "€", id="charset in HTML"),
            pytest.param(answer(gzip.compress(b"unpacked"), Content_Encoding="gzip"), "markdown", "unpacked", id="compressed"),
            pytest.param(answer(b"<div>" * 2000 + b"deep", "text/html"), "markdown", "deep", id="too deep for markdown"),
        ],
    )
    async def test_a_page_becomes_what_was_wanted(
        self, ctx: ToolContext, site: Site, page: bytes, wanted: str, output: str
    ) -> None:
        site.pages["/"] = page
        result = await fetch(ctx, site.url("/"), format=wanted)
        assert (result.output, result.metadata) == (output, {})
        assert result.title.startswith(f"{site.url('/')} (")

    @pytest.mark.parametrize(
        ("content_type", "body", "text"),
        [
            ("text/plain; charset=iso-8859-1", "é".encode("latin-1"), "é"),
            ("text/plain; charset=iso-8859-1", b"it\x92s \x80", "it’s €"),
            ("text/plain; charset=gb2312", "朱镕基".encode("gbk"), "朱镕基"),
            ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
            ("text/plain; charset=utf-16-le", "日本".encode("utf-16-le"), "日本"),
            ("text/plain", "日本".encode("utf-16"), "日本"),
            ("text/plain; charset=no-such-thing", "é".encode(), "é"),
            ("text/plain; charset=hex", b"6162", "6162"),
            ("text/plain", b"\xef\xbb\xbfa", "a"),
        ],
    )
    async def test_character_sets(self, ctx: ToolContext, site: Site, content_type: str, body: bytes, text: str) -> None:
        site.pages["/"] = answer(body, content_type)
        result = await fetch(ctx, site.url("/"))
        assert (result.output, result.title) == (text, f"{site.url('/')} ({content_type})")

    @pytest.mark.parametrize(
        ("page", "message"),
        [
            pytest.param(answer(b"\x89PNG\0\0", "image/png"), "not text but image/png", id="binary"),
            pytest.param(answer(b"", status="404 Not Found"), r"^Request failed with status code: 404$", id="no success"),
            pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "larger than 5 MiB", id="announced too large"),
            pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_BYTES + 1), "larger than 5 MiB", id="found too large"),
            pytest.param(
                answer(gzip.compress(b"x" * (MAX_BYTES + 1)), Content_Encoding="gzip"),
                "larger than 5 MiB",
                id="unpacks too large",
            ),
            pytest.param(SILENT, r"within 0\.2 seconds", id="silent"),
            pytest.param(redirect("file:///etc/passwd"), "only http", id="redirect to another scheme"),
        ],
    )
    async def test_a_page_that_cannot_be_shown_is_an_error(self, ctx: ToolContext, site: Site, page: bytes, message: str) -> None:
        site.pages["/"] = page
        with pytest.raises(ToolError, match=message):
            await fetch(ctx, site.url("/"), timeout=0.2 if page == SILENT else None)

    @pytest.mark.parametrize(
        "url", ["file:///etc/passwd", "ftp://x.example/", "x.example", "http://", "http://[bad/", "http://127.0.0.1:65536"]
    )
    async def test_addresses_that_cannot_be_fetched(self, ctx: ToolContext, url: str) -> None:
        with pytest.raises(ToolError):
            await fetch(ctx, url)

    async def test_asks_first(self, ctx: ToolContext, host: FakeHost, site: Site) -> None:
        host.refuse = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await fetch(ctx, site.url("/"), timeout=5)
        assert (host.asks[0].permission, host.asks[0].patterns, host.asks[0].always) == ("webfetch", [site.url("/")], ["*"])
        assert host.asks[0].metadata == {"url": site.url("/"), "format": "markdown", "timeout": 5}
        assert site.seen == []

    async def test_a_challenged_browser_asks_again_plainly(self, ctx: ToolContext, site: Site) -> None:
        challenge = answer(b"", status="403 Forbidden", cf_mitigated="challenge")
        site.pages["/"] = lambda seen: challenge if "Mozilla" in seen.headers["user-agent"] else answer(b"welcome")
        assert (await fetch(ctx, site.url("/"))).output == "welcome"

    async def test_a_server_that_is_not_there(self, ctx: ToolContext) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(ToolError, match="failed"):
                await fetch(ctx, f"http://x.example:{unused.getsockname()[1]}/")


class TestRedirects:
    async def test_are_followed_each_resolved_anew(self, ctx: ToolContext, site: Site) -> None:
        """A host's cookies are not sent to another one at the same address."""
        first = answer(b"", status="302 Found", Location=site.url("/b", "second.example"), Set_Cookie="secret=1; Path=/")
        site.pages |= {"/a": first, "/b": redirect("c?d=1"), "/c?d=1": answer(b"there")}
        resolve = Resolver("127.0.0.1")
        assert (await fetch(ctx, site.url("/a"), PinnedRequests(allow_private=True, resolve=resolve))).output == "there"
        assert resolve.asked == ["site.example", "second.example", "second.example"]
        assert [seen.headers["host"] for seen in site.seen] == [f"{host}:{site.port}" for host in resolve.asked]
        assert not any("cookie" in seen.headers for seen in site.seen)

    async def test_at_most_ten(self, ctx: ToolContext, site: Site) -> None:
        site.pages |= {f"/{n}": redirect(f"/{n + 1}") for n in range(12)}
        with pytest.raises(ToolError, match="10 redirects"):
            await fetch(ctx, site.url("/0"))
        assert len(site.seen) == 11

    async def test_to_a_private_address_are_refused(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = redirect("http://metadata.example/latest")
        resolve = Resolver("127.0.0.1", **{"metadata.example": "169.254.169.254"})
        with pytest.raises(ToolError, match="not a public address"):
            await fetch(ctx, site.url("/"), PinnedRequests(resolve=resolve, is_public=lambda address: address == LOOPBACK))
        assert len(site.seen) == 1


NOT_PUBLIC = """
127.0.0.1 127.8.8.8 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 100.100.100.200 192.0.0.192 168.63.129.16
0.0.0.0 224.0.0.1 255.255.255.255 240.0.0.1 :: ::1 fe80::1 fd00:ec2::254 fec0::1 ff02::1 ::ffff:127.0.0.1
::ffff:10.0.0.1 ::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1:: 2001:db8::1 192.88.99.0 192.88.99.255
::ffff:192.88.99.1 64:ff9b::c058:6301 3fff:: 3fff:fff:ffff::1
"""


class TestAddresses:
    @pytest.mark.parametrize("address", NOT_PUBLIC.split())
    async def test_not_public(self, ctx: ToolContext, address: str) -> None:
        """One among public ones is enough."""
        assert not is_public(ip_address(address))
        for addresses in ([address], ["1.1.1.1", address]):
            with pytest.raises(ToolError, match="not a public address") as denied:
                await fetch(ctx, "http://x.example/", PinnedRequests(resolve=Resolver(*addresses)))
            assert address not in str(denied.value)

    @pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
    def test_public(self, address: str) -> None:
        assert is_public(ip_address(address))

    @pytest.mark.parametrize("spelling", ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]", "localhost"])
    async def test_every_spelling_of_loopback_is_refused(self, ctx: ToolContext, site: Site, spelling: str) -> None:
        with pytest.raises(ToolError, match=r"not a public address|cannot be found"):
            await fetch(ctx, site.url("/", spelling), PinnedRequests())
        assert site.seen == []

    async def test_a_name_that_changes_its_address_gains_nothing(self, ctx: ToolContext, site: Site) -> None:
        """The system's resolver would find no such host: only the address that was checked can have been connected to. Of
        several the next is tried when one does not accept."""
        site.pages["/"] = answer(b"ok")
        resolve = Resolver("127.0.0.9", "127.0.0.1")
        requests = PinnedRequests(allow_private=True, resolve=resolve)
        assert (await fetch(ctx, site.url("/", "rebound.invalid"), requests)).output == "ok"
        assert resolve.asked == ["rebound.invalid"]
        assert site.seen[0].headers["host"] == f"rebound.invalid:{site.port}"

    async def test_proxies_of_the_environment_are_not_used(
        self, ctx: ToolContext, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        site.pages["/"] = answer(b"ok")
        assert (await fetch(ctx, site.url("/"))).output == "ok"

    async def test_the_systems_resolver(self) -> None:
        assert await web.resolve("127.0.0.1", 80) == [LOOPBACK]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of site.example, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    path, public = (tmp_path_factory.mktemp("tls") / name for name in ("site.pem", "public.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=site.example"]
    command += ["-addext", "subjectAltName=DNS:site.example", "-keyout", str(path), "-out", str(public)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    path.write_bytes(path.read_bytes() + public.read_bytes())
    return path


@pytest.mark.parametrize(("name", "error"), [("site.example", None), ("other.example", r"(?i)certificate")])
async def test_the_certificate_must_be_the_hosts(ctx: ToolContext, certificate: Path, name: str, error: str | None) -> None:
    """Though the connection goes to an address."""
    site = Site()
    site.pages["/"] = answer(b"ok")
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=serving)
    trusting = ssl.create_default_context(cafile=certificate)
    requests = PinnedRequests(allow_private=True, resolve=Resolver("127.0.0.1"), tls=lambda: trusting)
    async with server:
        fetching = fetch(ctx, f"https://{name}:{server.sockets[0].getsockname()[1]}/", requests)
        if error is None:
            assert (await fetching).output == "ok"
        else:
            with pytest.raises(ToolError, match=error):
                await fetching


@pytest.mark.parametrize("html", ["<a" + " " * 100_000, "<a b='" * 30_000])
async def test_markup_that_takes_hours_is_given_up_and_holds_nobody_up(ctx: ToolContext, site: Site, html: str) -> None:
    site.pages["/"] = answer(html.encode(), "text/html")
    fetching, began = asyncio.create_task(fetch(ctx, site.url("/"), timeout=2)), time.monotonic()
    while not fetching.done():
        before = time.monotonic()
        await asyncio.sleep(0.01)
        assert time.monotonic() - before < 1
    with pytest.raises(ToolError, match="within 2 seconds"):
        await fetching
    assert time.monotonic() - began < 4


async def test_two_pages_of_a_user_are_converted_at_a_time(ctx: ToolContext, site: Site) -> None:
    site.pages["/"] = answer(b"<a" + b" " * 100_000, "text/html")
    tool = WebFetchTool(PinnedRequests(allow_private=True, resolve=Resolver("127.0.0.1")))
    others, converters = set(psutil.Process().children()), 0
    fetching = [asyncio.create_task(run(tool, ctx, url=site.url("/"), timeout=2)) for _ in range(6)]
    while not all(task.done() for task in fetching):
        await asyncio.sleep(0.05)
        converters = max(converters, len({*psutil.Process().children()} - others))
    assert 0 < converters <= 2
    assert all(isinstance(task.exception(), ToolError) for task in fetching)


# What HTML becomes.


@pytest.mark.parametrize(
    ("html", "markdown", "text"),
    [
        pytest.param(
            "<h2>Code</h2><pre><code>a = 1\nb = 2</code></pre>",
            "## Code\n\n```\na = 1\nb = 2\n```",
            "Code\n\na = 1 b = 2",
            id="code",
        ),
        pytest.param("<table><tr><th>h</th></tr><tr><td>v</td></tr></table>", "| h |\n| --- |\n| v |", "h\n\nv", id="table"),
        pytest.param("<ol><li>x</ol>", "1. x", "x", id="list"),
        pytest.param("<head><title>t</title></head><!-- c --><style>p{}</style><p>kept</p>", "kept", "kept", id="no head"),
        pytest.param("<script>var x = '<p>no</p>'</script><noscript>n</noscript><p>kept</p>", "kept", "kept", id="no script"),
        pytest.param("<h1>a</h1><![word[b]]>", "# a\n\n<![word[b]]>", "a\n<![word[b]]>", id="an unknown section"),
        pytest.param("<div>" * 5_000 + "x" + "</div>" * 5_000, "x", "x", id="deep"),
        pytest.param("<div>a  b<br>c</div><p>d <i>e</i>f</p>", "a b  \nc\n\nd *e*f", "a b\nc\n\nd ef", id="one line a block"),
        pytest.param("<table><tr><td>g<td>h</table>", "|  |  |\n| --- | --- |\n| g h | |", "g h", id="cells"),
        pytest.param(
            "<p>1 &lt; 2 &amp; 3 &eacute;</p></p></div><b>x",
            "1 < 2 & 3 é\n\n**x**",
            "1 < 2 & 3 é\nx",
            id="entities and broken markup",
        ),
        pytest.param("<svg>a<svg>b</svg>c</svg>d", "d", "d", id="outside a nested hidden element"),
    ],
)
def test_markdown_keeps_the_structure_and_text_what_a_reader_sees(html: str, markdown: str, text: str) -> None:
    assert (to_markdown(html), to_text(html)) == (markdown, text)
