#!/usr/bin/env python3
"""Prompt an Opensession server and print the answer as it streams: python client.py "read README.md"

It needs httpx. OPENSESSION_URL names the server; OPENSESSION_TOKEN is a token of it, where it wants a login.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import httpx

URL = os.environ.get("OPENSESSION_URL", "http://127.0.0.1:4096")
TOKEN = os.environ.get("OPENSESSION_TOKEN")


def events(client: httpx.Client) -> Iterator[tuple[str, dict[str, Any]]]:
    with client.stream("GET", "/event", params={"parts": "delta"}) as stream:
        for line in stream.raise_for_status().iter_lines():
            if line.startswith("data:"):
                event = json.loads(line[5:])
                yield event["type"], event["properties"]


def main(prompt: str) -> None:
    login = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    with httpx.Client(base_url=URL, headers=login, timeout=60) as client:
        session = client.post("/session", json={}).raise_for_status().json()["id"]
        ours = {session}
        for kind, event in events(client):
            if kind == "server.connected":
                body = {"parts": [{"type": "text", "text": prompt}]}
                client.post(f"/session/{session}/prompt_async", json=body).raise_for_status()
            elif kind == "session.created" and event["info"].get("parentID") in ours:
                ours.add(event["info"]["id"])  # a subagent's
            elif kind == "permission.asked" and event["sessionID"] in ours:
                print(f"\n[not allowed: {event['permission']} {' '.join(event['patterns'])}]")
                client.post(f"/permission/{event['id']}/reply", json={"reply": "reject"}).raise_for_status()
            elif event.get("sessionID") != session:
                continue
            elif kind == "message.part.delta" and event["partType"] == "text":
                print(event["delta"], end="", flush=True)
            elif kind == "session.error":
                sys.exit(f"\nfailed: {event['error']['data'].get('message', event['error']['name'])}")
            elif kind == "session.idle":
                print()
                break


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "help")
