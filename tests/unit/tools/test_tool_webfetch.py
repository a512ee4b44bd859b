import asyncio
import gzip
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path

import pytest

from app.permissions.service import PermissionRejected
from app.tools import web
from app.tools.base import ToolContext, ToolError, ToolResult
from app.tools.builtin.webfetch import MAX_BYTES, WebFetchParameters, WebFetchTool
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


async def to_loopback(host: str, port: int) -> list[Address]:
    return [LOOPBACK]


def always(*found: str) -> Callable[[str, int], Awaitable[list[Address]]]:
    async def resolve(host: str, port: int) -> list[Address]:
        return [ip_address(address) for address in found]

    return resolve


async def fetch(ctx: ToolContext, url: str, **arguments: object) -> ToolResult:
    tool = WebFetchTool(PinnedRequests(allow_private=True, resolve=to_loopback))
    return await tool.execute(WebFetchParameters.model_validate({"url": url, **arguments}), ctx)


HTML = b"""<!doctype html><html><head><title>T</title><style>p{}</style></head><body><script>alert(1)</script>
<h1>Head</h1><p>One <b>two</b> &amp; <a href="/x">link</a></p><ul><li>a</li><li>b</li></ul></body></html>"""


class TestPages:
    async def test_html_becomes_markdown(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(HTML, "text/html; charset=utf-8")
        result = await fetch(ctx, site.url("/"))
        assert result.output == "# Head\n\nOne **two** & [link](/x)\n\n- a\n- b"
        assert result.title == f"{site.url('/')} (text/html; charset=utf-8)"
        assert result.metadata == {}

    async def test_html_becomes_text(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(HTML, "text/html")
        assert (await fetch(ctx, site.url("/"), format="text")).output == "Head\n\nOne two & link\n\na\n\nb"

    async def test_html_as_it_is(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(HTML, "text/html")
        assert (await fetch(ctx, site.url("/"), format="html")).output == HTML.decode()

    async def test_other_text_is_left_alone(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(b'{"a": "<b>"}', "application/json")
        assert (await fetch(ctx, site.url("/"))).output == '{"a": "<b>"}'

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            ("text/plain; charset=iso-8859-1", "é".encode("latin-1")),
            ("text/plain; charset=shift_jis", "日本".encode("shift_jis")),
            ("text/plain; charset=utf-16-le", "日本".encode("utf-16-le")),
            ("text/plain", "日本".encode("utf-16")),
            ("text/plain; charset=no-such-thing", "é".encode()),
            ("text/plain; charset=hex", b"6162"),
            ("text/plain", b"\xef\xbb\xbfa"),
        ],
    )
    async def test_character_sets(self, ctx: ToolContext, site: Site, content_type: str, body: bytes) -> None:
        site.pages["/"] = answer(body, content_type)
        assert (await fetch(ctx, site.url("/"))).output in ("é", "日本", "6162", "a")

    async def test_the_character_set_named_in_the_html(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(b'<meta charset="windows-1252"><p>\x80</p>', "text/html")
        assert (await fetch(ctx, site.url("/"))).output == "€"

    async def test_compressed(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(gzip.compress(b"unpacked"), Content_Encoding="gzip")
        assert (await fetch(ctx, site.url("/"))).output == "unpacked"

    async def test_binary_is_refused(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(b"\x89PNG\0\0", "image/png")
        with pytest.raises(ToolError, match="not text but image/png"):
            await fetch(ctx, site.url("/"))

    async def test_a_nesting_too_deep_for_markdown_becomes_text(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(b"<div>" * 5000 + b"deep", "text/html")
        assert (await fetch(ctx, site.url("/"))).output == "deep"

    async def test_an_unsuccessful_status(self, ctx: ToolContext, site: Site) -> None:
        with pytest.raises(ToolError, match=r"^Request failed with status code: 404$"):
            await fetch(ctx, site.url("/none"))

    async def test_asks_first(self, ctx: ToolContext, host, site: Site) -> None:
        host.refuse = PermissionRejected()
        with pytest.raises(PermissionRejected):
            await fetch(ctx, site.url("/"), timeout=5)
        assert (host.asks[0].permission, host.asks[0].patterns, host.asks[0].always) == ("webfetch", [site.url("/")], ["*"])
        assert host.asks[0].metadata == {"url": site.url("/"), "format": "markdown", "timeout": 5}
        assert site.seen == []

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x.example/", "x.example", "http://", "http://[bad/"])
    async def test_addresses_that_cannot_be_fetched(self, ctx: ToolContext, url: str) -> None:
        with pytest.raises(ToolError):
            await fetch(ctx, url)

    async def test_a_challenged_browser_asks_again_plainly(self, ctx: ToolContext, site: Site) -> None:
        challenge = answer(b"", status="403 Forbidden", cf_mitigated="challenge")
        site.pages["/"] = lambda seen: challenge if "Mozilla" in seen.headers["user-agent"] else answer(b"welcome")
        assert (await fetch(ctx, site.url("/"))).output == "welcome"


class TestLimits:
    async def test_a_size_announced_too_large(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
        with pytest.raises(ToolError, match="larger than 5 MiB"):
            await fetch(ctx, site.url("/"))

    async def test_a_size_found_too_large(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * (MAX_BYTES + 1)
        with pytest.raises(ToolError, match="larger than 5 MiB"):
            await fetch(ctx, site.url("/"))

    async def test_a_small_answer_that_unpacks_too_large(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(gzip.compress(b"x" * (MAX_BYTES + 1)), Content_Encoding="gzip")
        with pytest.raises(ToolError, match="larger than 5 MiB"):
            await fetch(ctx, site.url("/"))

    async def test_time(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = SILENT
        with pytest.raises(ToolError, match=r"within 0\.2 seconds"):
            await fetch(ctx, site.url("/"), timeout=0.2)

    async def test_a_server_that_is_not_there(self, ctx: ToolContext) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(ToolError, match="failed"):
                await fetch(ctx, f"http://x.example:{unused.getsockname()[1]}/")


class TestRedirects:
    async def test_are_followed_each_resolved_anew(self, ctx: ToolContext, site: Site) -> None:
        hosts: list[str] = []

        async def resolve(host: str, port: int) -> list[Address]:
            hosts.append(host)
            return [LOOPBACK]

        site.pages |= {"/a": redirect(site.url("/b", "second.example")), "/b": redirect("c?d=1"), "/c?d=1": answer(b"there")}
        tool = WebFetchTool(PinnedRequests(allow_private=True, resolve=resolve))
        result = await tool.execute(WebFetchParameters(url=site.url("/a")), ctx)
        assert result.output == "there"
        assert hosts == ["site.example", "second.example", "second.example"]
        assert [seen.headers["host"] for seen in site.seen] == [f"{host}:{site.port}" for host in hosts]

    async def test_at_most_ten(self, ctx: ToolContext, site: Site) -> None:
        site.pages |= {f"/{n}": redirect(f"/{n + 1}") for n in range(12)}
        with pytest.raises(ToolError, match="10 redirects"):
            await fetch(ctx, site.url("/0"))
        assert len(site.seen) == 11

    async def test_to_another_scheme_are_refused(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = redirect("file:///etc/passwd")
        with pytest.raises(ToolError, match="only http"):
            await fetch(ctx, site.url("/"))

    async def test_to_a_private_address_are_refused(self, ctx: ToolContext, site: Site) -> None:
        async def resolve(host: str, port: int) -> list[Address]:
            return [ip_address("169.254.169.254") if host == "metadata.example" else LOOPBACK]

        site.pages["/"] = redirect("http://metadata.example/latest")
        tool = WebFetchTool(PinnedRequests(resolve=resolve, is_public=lambda address: address == LOOPBACK))
        with pytest.raises(ToolError, match="not a public address"):
            await tool.execute(WebFetchParameters(url=site.url("/")), ctx)
        assert len(site.seen) == 1

    async def test_one_hosts_cookies_are_not_sent_to_another_at_the_same_address(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(b"", status="302 Found", Location=site.url("/b", "other.example"), Set_Cookie="secret=1; Path=/")
        site.pages["/b"] = answer(b"ok")
        await fetch(ctx, site.url("/"))
        assert "cookie" not in site.seen[1].headers


NOT_PUBLIC = """
127.0.0.1 127.8.8.8 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 100.100.100.200 192.0.0.192 168.63.129.16
0.0.0.0 224.0.0.1 255.255.255.255 240.0.0.1 :: ::1 fe80::1 fd00:ec2::254 fec0::1 ff02::1 ::ffff:127.0.0.1
::ffff:10.0.0.1 ::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1:: 2001:db8::1 192.88.99.0 192.88.99.255
::ffff:192.88.99.1 64:ff9b::c058:6301 3fff:: 3fff:fff:ffff::1
"""


class TestAddresses:
    @pytest.mark.parametrize("address", NOT_PUBLIC.split())
    async def test_not_public(self, ctx: ToolContext, address: str) -> None:
        assert not is_public(ip_address(address))
        with pytest.raises(ToolError, match="not a public address"):
            await WebFetchTool(PinnedRequests(resolve=always(address))).execute(WebFetchParameters(url="http://x.example/"), ctx)

    @pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
    def test_public(self, address: str) -> None:
        assert is_public(ip_address(address))

    async def test_one_private_address_among_public_ones_is_enough(self, ctx: ToolContext) -> None:
        tool = WebFetchTool(PinnedRequests(resolve=always("1.1.1.1", "10.0.0.1")))
        with pytest.raises(ToolError, match="not a public address") as denied:
            await tool.execute(WebFetchParameters(url="https://x.example/"), ctx)
        assert "10.0.0.1" not in str(denied.value)

    @pytest.mark.parametrize("spelling", ["127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]", "localhost"])
    async def test_every_spelling_of_loopback_is_refused(self, ctx: ToolContext, site: Site, spelling: str) -> None:
        with pytest.raises(ToolError, match=r"not a public address|cannot be found"):
            await WebFetchTool(PinnedRequests()).execute(WebFetchParameters(url=site.url("/", spelling)), ctx)
        assert site.seen == []

    async def test_a_name_that_changes_its_address_gains_nothing(self, ctx: ToolContext, site: Site) -> None:
        """The system's resolver would find no such host: only the address that was checked can have been connected to."""
        asked: list[str] = []

        async def resolve(host: str, port: int) -> list[Address]:
            asked.append(host)
            return [LOOPBACK]

        site.pages["/"] = answer(b"ok")
        tool = WebFetchTool(PinnedRequests(allow_private=True, resolve=resolve))
        result = await tool.execute(WebFetchParameters(url=site.url("/", "rebound.invalid")), ctx)
        assert result.output == "ok"
        assert asked == ["rebound.invalid"]
        assert site.seen[0].headers["host"] == f"rebound.invalid:{site.port}"

    async def test_the_next_address_is_tried_when_one_does_not_accept(self, ctx: ToolContext, site: Site) -> None:
        site.pages["/"] = answer(b"ok")
        tool = WebFetchTool(PinnedRequests(allow_private=True, resolve=always("127.0.0.9", "127.0.0.1")))
        assert (await tool.execute(WebFetchParameters(url=site.url("/")), ctx)).output == "ok"

    async def test_proxies_of_the_environment_are_not_used(
        self, ctx: ToolContext, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        site.pages["/"] = answer(b"ok")
        assert (await fetch(ctx, site.url("/"))).output == "ok"

    async def test_the_systems_resolver(self) -> None:
        assert await web.resolve("127.0.0.1", 80) == [LOOPBACK]


class TestTls:
    """The connection goes to an address; the certificate must still be the host's."""

    @pytest.fixture
    async def certificate(self, tmp_path: Path) -> Path:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is needed to make a certificate")
        path = tmp_path / "site.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=site.example"]
        command += ["-addext", "subjectAltName=DNS:site.example", "-keyout", str(path), "-out", str(tmp_path / "public.pem")]
        making = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        assert await making.wait() == 0
        path.write_bytes(path.read_bytes() + (tmp_path / "public.pem").read_bytes())
        return path

    async def fetch_from(self, host: str, certificate: Path, ctx: ToolContext) -> str:
        site = Site()
        site.pages["/"] = answer(b"ok")
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(certificate)
        server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=serving)
        port = server.sockets[0].getsockname()[1]
        tool = WebFetchTool(
            PinnedRequests(allow_private=True, resolve=to_loopback, tls=lambda: ssl.create_default_context(cafile=certificate))
        )
        async with server:
            return (await tool.execute(WebFetchParameters(url=f"https://{host}:{port}/"), ctx)).output

    async def test_the_hosts_certificate_is_accepted(self, ctx: ToolContext, certificate: Path) -> None:
        assert await self.fetch_from("site.example", certificate, ctx) == "ok"

    async def test_another_hosts_certificate_is_not(self, ctx: ToolContext, certificate: Path) -> None:
        with pytest.raises(ToolError, match=r"(?i)certificate"):
            await self.fetch_from("other.example", certificate, ctx)
