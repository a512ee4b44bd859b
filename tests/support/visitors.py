"""Visitors of a share link that come at one moment, in a process of their own: `python visitors.py PORT COUNT PATH…`.

Connects all of them, prints `ready`, waits for a line, then each asks for all paths in turn. Prints how many
answers were whole."""

import asyncio
import sys


async def visit(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str) -> bool:
    reader, writer = connection
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    left = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    while left:
        piece = await reader.read(min(left, 256 * 1024))
        if not piece:
            return False
        left -= len(piece)
    return head.startswith(b"http/1.1 200")


async def visit_all(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], paths: list[str]) -> list[bool]:
    return [await visit(connection, path) for path in paths]


async def main(port: int, count: int, paths: list[str]) -> None:
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    answers = await asyncio.gather(*(visit_all(connection, paths) for connection in connections))
    print(sum(map(sum, answers)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
