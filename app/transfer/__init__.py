"""What leaves a server and comes back: sessions as documents, backups (`backup/`), deliveries (`webhooks/`).

Begin at `document.py`, which defines a document. `importing.py` stores one; the other modules make documents, or use them. The
package imports all packages below; only routes, commands and `app.server` import it.
"""
