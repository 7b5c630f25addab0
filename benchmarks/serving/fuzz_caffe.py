"""Feeds damaged prototxts and caffemodels to the reader: whatever they hold, it answers with a network or one sentence.

    python fuzz_caffe.py FOLDER [--count 100000] [--seed 0]

FOLDER holds pairs NAME.prototxt and NAME.caffemodel, from which the damaged ones are made: bytes changed, removed, doubled, pieces
of one in another, numbers replaced by large ones. Anything but a `TonnageError`, more than a second for one file, or more
than a gigabyte in all ends the run with the seed that led there.
"""

import argparse
import random
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from damage import damaged_text

from tonnage.errors import TonnageError
from tonnage.program.caffe import load

MOST_SECONDS, MOST_KILOBYTES = 1.0, 1 << 20
NUMBERS = ["0", "-1", "1", "7", "2147483647", "4294967295", "99999999999999999999", "1e30", "nan", "0x7f", "3.5"]
WORDS = ["{", "}", '"', ":", "layer", "top", "bottom", "[", "]", "<", "type", "#", "\\", "pool", "AVE", "true", "input"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pairs = [
        (each.read_text(), each.with_suffix(".caffemodel").read_bytes())
        for each in sorted(options.folder.glob("*.prototxt"))
    ]
    results: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.seed, options.seed + options.count):
            seconds, result = tried(Path(folder), pairs, number)
            results[result] += 1
            slowest = max(slowest, seconds)
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if seconds > MOST_SECONDS or used > MOST_KILOBYTES:
                raise SystemExit(f"seed {number}: {seconds:.1f} s, {used >> 10} MiB")
            if number % 5000 == 0:
                print(f"{number}: {dict(results)}, slowest {slowest:.2f} s, {used >> 10} MiB", flush=True)
    print(f"{options.count} files: {dict(results)}, slowest {slowest:.2f} s")


def tried(folder: Path, pairs: list[tuple[str, bytes]], seed: int) -> tuple[float, str]:
    chance = random.Random(seed)
    text, weights = chance.choice(pairs)
    if chance.random() < 0.6:
        text = damaged_text(text, chance, WORDS, NUMBERS)
    else:
        weights = damaged_bytes(weights, chance)
    prototxt, caffemodel = folder / "net.prototxt", folder / "net.caffemodel"
    prototxt.write_bytes(text.encode(errors="surrogatepass"))
    caffemodel.write_bytes(weights)
    start = time.process_time()
    try:
        load(prototxt, caffemodel)
        result = "read"
    except TonnageError as error:
        result = "refused" if "\n" not in str(error) and str(folder) in str(error) else f"unclear: {error}"
    except Exception as error:
        raise SystemExit(f"seed {seed}: {type(error).__name__}: {error}") from error
    return time.process_time() - start, result


def damaged_bytes(content: bytes, chance: random.Random) -> bytes:
    made = bytearray(content[: chance.choice([len(content), 2000, 300])])
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(made)) if made else 0
        kind = chance.randrange(5)
        if kind == 0 and made:
            made[place] = chance.randrange(256)
        elif kind == 1:
            del made[place : place + chance.randint(1, 50)]
        elif kind == 2:
            made[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 12)))
        elif kind == 3:
            made[place:place] = made[place : place + chance.randint(1, 3000)]
        elif made:
            made[place] ^= 1 << chance.randrange(8)
    return bytes(made)


if __name__ == "__main__":
    main()
