"""Webhooks that wait for the same events read the journal once."""

import asyncio

from webhook_desk import WebhookDesk

from app.storage.engine import Database
from app.webhook.worker import JournalPages


class CountedReads(Database):
    reads = 0

    async def read(self, query):  # type: ignore[no-untyped-def]
        self.reads += 1
        return await super().read(query)


async def test_those_at_the_same_place_read_together_what_was_announced_before(desk: WebhookDesk) -> None:
    database = CountedReads(desk.database.engine.url.render_as_string(hide_password=False))
    pages = JournalPages(database)
    await desk.announce("one")
    together = [pages.after(0, None, None) for _ in range(10)]
    apart = [pages.after(0, "/d", None), pages.after(1, None, None), pages.after(0, None, "anna")]
    found = await asyncio.gather(*together, *apart)
    assert [len(page.rows) for page in found] == [1] * 10 + [1, 0, 0] and database.reads == 4
    before = asyncio.create_task(pages.after(1, None, None))
    await asyncio.sleep(0)
    await desk.announce("two")
    pages.note_events()
    assert len((await pages.after(1, None, None)).rows) == 1, "a read that began before is not joined"
    await before
    database.close()
