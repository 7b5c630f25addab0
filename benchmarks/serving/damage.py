"""Text with a few mistakes in it, for fuzzing readers of protobuf's text format."""

import random
import re
from collections.abc import Sequence


def damaged_text(text: str, chance: random.Random, words: Sequence[str], numbers: Sequence[str]) -> str:
    """One to four of: a word put in, a part left out or doubled, another number, character or name, an early end."""
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(text) + 1)
        kind = chance.randrange(7)
        if kind == 0:
            text = text[:place] + chance.choice(words) + text[place:]
        elif kind == 1:
            text = text[:place] + text[place + chance.randint(1, 40) :]
        elif kind == 2:
            text = _replaced(text, r"-?\b\d+\b", numbers, chance)
        elif kind == 3:
            other = chance.randrange(len(text) + 1)
            text = text[:place] + text[other : other + chance.randint(1, 400)] + text[place:]
        elif kind == 4:
            made = chr(chance.choice([0, 9, 34, 92, 255, 0x4E2D, 0x1F600, chance.randrange(32, 127)]))
            text = text[:place] + made + text[place + 1 :]
        elif kind == 5:
            text = _replaced(text, r"\b[a-z_]{3,}\b", re.findall(r"\b[a-z_]{3,}\b", text), chance)
        else:
            text = text[:place]
    return text


def _replaced(text: str, pattern: str, others: Sequence[str], chance: random.Random) -> str:
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    found = chance.choice(places)
    return text[: found.start()] + chance.choice(others) + text[found.end() :]
