"""How many tokens a text is likely to be, where no provider has counted them."""

import re

CHARACTERS_A_TOKEN = 4
DENSE_CHARACTERS_A_TOKEN = 1.5
"""Chinese, Japanese and Korean: a token holds one or two characters."""

_DENSE = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")


def estimate(text: str) -> int:
    dense = len(_DENSE.findall(text)) if not text.isascii() else 0
    return round((len(text) - dense) / CHARACTERS_A_TOKEN + dense / DENSE_CHARACTERS_A_TOKEN)
