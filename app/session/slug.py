"""Short pronounceable names: `<adjective>-<noun>`."""

import random


def _words(text: str) -> list[str]:
    return text.split()


_ADJECTIVES = _words(
    "able amber bold brave bright brisk calm clear clever cosy crisp daring eager fair fresh gentle glad golden kind "
    "lively lucky mellow merry neat nimble plain proud quick quiet ready rosy shy silent silver smooth snug solid steady "
    "sunny swift tidy tiny warm wise witty young"
)
_NOUNS = _words(
    "badger bay beacon birch brook cabin canyon cedar cliff cloud comet cove crane dawn dune eagle ember falcon fern "
    "field finch fjord forest fox garden glade harbor hawk heron hill island lagoon lake lantern maple marsh meadow moon "
    "oak orchid otter owl pebble pine planet pond raven reef ridge river robin sparrow spring star stone summit tide "
    "valley willow wren"
)


def make() -> str:
    return f"{random.choice(_ADJECTIVES)}-{random.choice(_NOUNS)}"
