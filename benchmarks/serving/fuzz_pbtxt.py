"""Feeds damaged configurations to the reader of config.pbtxt: whatever they hold, it answers with a configuration or one sentence.

    python fuzz_pbtxt.py [--count 100000] [--seed 0] [--folder FOLDER]

The damaged ones are made from the files below and those in FOLDER: characters changed, removed, doubled, pieces of one in another, numbers
replaced by large ones, blocks nested deeply, fields repeated thousands of times. What is read is written and read again, and must be the
same. Anything but an `InvalidFile` that names file and line, more than a second for one file, or more than half a gigabyte in all ends the
run with the seed that led there.
"""

import argparse
import random
import resource
import time
from collections import Counter
from pathlib import Path

from damage import damaged_text

from tonnage.errors import InvalidFile
from tonnage.serve.configuration_file import configuration_of
from tonnage.serve.configuration_text import configuration_text
from tonnage.serve.pbtxt import parse_pbtxt

MOST_SECONDS, MOST_KILOBYTES = 1.0, 1 << 19
FILE = "config.pbtxt"
FILES = [
    """
name: "m"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [
  { name: "INPUT0", data_type: TYPE_FP32, format: FORMAT_NCHW, dims: [ 3, 224, 224 ] },
  { name: "text" data_type: TYPE_STRING dims: [ 1 ] reshape { shape: [ ] } }
]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1000 ] } ]
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  priority_levels: 2
  default_priority_level: 1
  default_queue_policy { timeout_action: DELAY max_queue_size: 16 }
  priority_queue_policy { key: 1 value: { default_timeout_microseconds: 500000 } }
}
""",
    """
# Comments; separators, and maps.
backend: 'pytorch';
max_batch_size: 0,
version_policy: { specific: { versions: [ 1, 3 ] } }
input { name: "INPUT__0" data_type: TYPE_INT64 dims: -1 dims: 0x10 optional: true }
output < name: "OUTPUT__0" data_type: TYPE_BF16 dims: [-1] >
parameters: { key: "INFERENCE_MODE" value: { string_value: "true\\n\\101\\x41" } }
parameters: { key: "a" "b" value { string_value: "c" } }
optimization { priority: PRIORITY_MAX graph { level: 1 } cuda { graphs: true } }
model_warmup [ { name: "w" batch_size: 1 inputs { key: "x" value: { zero_data: true dims: [ 1 ] } } } ]
""",
]
NUMBERS = [
    "0",
    "-1",
    "1",
    "7",
    "2147483647",
    "4294967296",
    "9" * 30,
    "9" * 5000,
    "1e30",
    "nan",
    "-inf",
    "0x7f",
    "3.5f",
    "017",
    "1e999",
]
WORDS = [
    "{", "}", '"', "'", ":", "[", "]", "<", ">", ";", ",", "#", "\\", "-", "input", "dims", "name", "true", "TYPE_FP32", "key", "value",
    "parameters { key: 1 }", "version_policy { all { } }", "input { }", "instance_group [ { } ]", "\ufeff", "\x00",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    files = FILES + [each.read_text() for each in sorted(options.folder.rglob("*.pbtxt"))] if options.folder else FILES
    results: Counter[str] = Counter()
    slowest = 0.0
    for number in range(options.seed, options.seed + options.count):
        seconds, result = tried(files, number)
        results[result] += 1
        slowest = max(slowest, seconds)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if seconds > MOST_SECONDS or used > MOST_KILOBYTES:
            raise SystemExit(f"seed {number}: {seconds:.1f} s, {used >> 10} MiB")
        if number % 5000 == 0:
            print(f"{number}: {dict(results)}, slowest {slowest:.2f} s, {used >> 10} MiB", flush=True)
    print(f"{options.count} files: {dict(results)}, slowest {slowest:.2f} s, {used >> 10} MiB")


def tried(files: list[str], seed: int) -> tuple[float, str]:
    chance = random.Random(seed)
    data = damaged(chance.choice(files), chance).encode(errors="surrogatepass")
    if chance.random() < 0.1:
        place = chance.randrange(len(data) + 1)
        data = data[:place] + bytes([chance.randrange(256)]) + data[place:]
    start = time.process_time()
    try:
        source = parse_pbtxt(data, FILE)
        configuration = configuration_of("m", source, source.value, Path("/nowhere"))
        result = "read"
    except InvalidFile as error:
        result = "refused" if "\n" not in str(error) and str(error).startswith(FILE) else f"unclear: {error}"
    except BaseException as error:
        raise SystemExit(f"seed {seed}: {type(error).__name__}: {error}") from error
    seconds = time.process_time() - start
    if result == "read":
        again = parse_pbtxt(configuration_text(configuration).encode(), FILE)
        if configuration_of("m", again, again.value, Path("/nowhere")) != configuration:
            raise SystemExit(f"seed {seed}: what is written is not what was read")
    return seconds, result


def damaged(text: str, chance: random.Random) -> str:
    if chance.random() < 0.002:
        return huge(chance)
    return damaged_text(text, chance, WORDS, NUMBERS)


def huge(chance: random.Random) -> str:
    """Little that means nothing, very often."""
    count = chance.choice([1000, 20_000, 100_000])
    return chance.choice([
        "input {" * count, "a:1 " * count, "dims: [" + "1," * count + "]", '"' * count, "parameters { key: 1 } " * (count // 4),
        "\n" * count + "x", " ".join(f"f{n}: 1" for n in range(count // 2)), "name: " + '"a" ' * count, "[" * count,
        'input { name: "x" data_type: TYPE_FP32 } ' * (count // 8), "-" * count, "9" * count, "\\" * count, "#" * count,
    ])  # fmt: skip


if __name__ == "__main__":
    main()
