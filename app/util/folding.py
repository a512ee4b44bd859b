"""Text as searches compare it, of titles and of messages: without case, accents and differences of width. Pure."""

import re
import unicodedata

_ACCENTS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_COMPOSING = "\u1160-\u11ff\u3099\u309a"
"""What makes one character with the one before it, and is no accent: the vowels of Hangul, the voicing of kana."""

_ACCENT = re.compile(f"[{_ACCENTS}]+")
JOINED = f"[{_ACCENTS}{_COMPOSING}]"
"""What belongs to the character before it."""


def fold(text: str) -> str:
    """Without NUL, which databases cannot hold."""
    text = text.replace("\0", "")
    if text.isascii():
        return text.lower()
    plain = _ACCENT.sub("", unicodedata.normalize("NFKD", text)).casefold()
    return unicodedata.normalize("NFC", plain)
