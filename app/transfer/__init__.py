"""What leaves a server and comes back: sessions as documents, backups of all there is (`backup/`), deliveries (`webhooks/`).

Begin at `document.py`, which says what a document is. `importing.py` stores one; everything else leads to it or away from it.
It imports all rooms below; only routes, commands and `app.server` import it.
"""
