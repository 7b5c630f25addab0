"""Random mutations of valid labels, none of which may be accepted.

    python benchmarks/configure/mutations.py [--count 100000] [--seed 0] [--write]

Each mutation changes a label's JSON or its annotations, as bytes or as values, and leaves something that is not what the
server has signed, however little. It then goes the way that every label goes: strict reading, then verification against
the right key, at the right time, for the right program, with nothing seen before.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tonnage.configure import label_json
from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.label import ImageReference, Label, PredictedTime, SignedLabel
from tonnage.configure.label_annotations import from_annotations, to_annotations
from tonnage.configure.signing import KnownServer, public_key, sign, verify
from tonnage.errors import Refused

NOW = 1_794_000_000
DIGEST = "sha256:" + "5" * 64
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
SERVERS = {"laboratory": KnownServer(name="laboratory", public_key=public_key(KEY))}
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Given:
    """Two labels of one server: a mutation of the first may use parts of the second."""

    content: bytes
    other: bytes
    annotations: dict[str, str]


def a_label(generator: random.Random) -> Label:
    """Any that the server could have made."""
    seconds = generator.uniform(1, 1e6)
    return Label(
        id=f"{generator.getrandbits(128):032x}",
        server="laboratory",
        hardware=HardwareConfiguration(
            node_type="hopper", gpu="H200", gpu_count=generator.choice([1, 2, 4, 8]),
            communication=generator.choice(["nvlink", "pcie"]), pcie_generation=generator.choice([None, 4, 5]),
            pcie_lanes=generator.choice([None, 16]), cpu_cores=generator.randint(1, 112), sockets=2,
            memory_bytes=generator.randint(1, 2**41), loader_workers=generator.randint(0, 64),
            pinned_memory=generator.random() < 0.5,
        ),
        image=ImageReference(
            reference="docker.io/pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
            digest=generator.choice([None, f"sha256:{generator.getrandbits(256):064x}"]),
        ),
        program_digest=DIGEST,
        rules_version="2026.11",
        predicted=PredictedTime(seconds=seconds, low_seconds=seconds / 2, high_seconds=seconds * 2, steps=1000),
        issued_at=NOW - 10,
        expires_at=NOW + 86400,
    )  # fmt: skip


def given(generator: random.Random) -> Given:
    first, second = (sign(a_label(generator), KEY) for _ in range(2))
    return Given(label_json.dump(first), label_json.dump(second), to_annotations(first))


# -- bytes ----------------------------------------------------------------------------------------------------------------


def flip_a_bit(g: Given, r: random.Random) -> bytes:
    at = r.randrange(len(g.content))
    return g.content[:at] + bytes([g.content[at] ^ (1 << r.randrange(8))]) + g.content[at + 1 :]


def replace_bytes(g: Given, r: random.Random) -> bytes:
    at, count = r.randrange(len(g.content)), r.randint(1, 4)
    return g.content[:at] + r.randbytes(count) + g.content[at + count :]


def insert_bytes(g: Given, r: random.Random) -> bytes:
    at = r.randint(0, len(g.content))
    more = r.choice([b" ", b"\n", b"\t", b"0", b"\x00", b"\xef\xbb\xbf", b",", b"}", r.randbytes(r.randint(1, 8))])
    return g.content[:at] + more + g.content[at:]


def delete_bytes(g: Given, r: random.Random) -> bytes:
    at = r.randrange(len(g.content))
    return g.content[:at] + g.content[at + r.randint(1, 8) :]


def cut(g: Given, r: random.Random) -> bytes:
    return g.content[: r.randrange(len(g.content))]


def splice(g: Given, r: random.Random) -> bytes:
    at = r.randrange(len(g.content))
    return g.content[:at] + g.other[at:]


def swap_digits(g: Given, r: random.Random) -> bytes:
    places = [index for index, byte in enumerate(g.content) if 48 <= byte <= 57]
    at = r.choice(places)
    return g.content[:at] + bytes([48 + r.randrange(10)]) + g.content[at + 1 :]


# -- values ---------------------------------------------------------------------------------------------------------------


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in _leaves(part, (*path, name))]
    return [path]


def _changed(content: bytes, path: tuple[str, ...], change: Callable[[Any], Any]) -> bytes:
    plain = json.loads(content)
    at = plain
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = change(at[path[-1]])
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def change_a_value(g: Given, r: random.Random) -> bytes:
    """To another of its type, written as a label is written."""

    def change(value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return max(value + r.choice([-1, 1, 1000, 2**40]), 0)
        if isinstance(value, float):
            return value * r.choice([0.5, 1.0000001, 2.0])
        return None if value is None else value[:-1] + r.choice("0123456789abcdef")

    return _changed(g.content, r.choice(_leaves(json.loads(g.content))), change)


def change_a_type(g: Given, r: random.Random) -> bytes:
    def change(value: Any) -> Any:
        others = [str(value), [value], {"value": value}, None, True, 0, 0.0, 1e300, -1, "", 2**70]
        if isinstance(value, int | float):
            others += [float(value), int(value)]
        return r.choice(others)

    return _changed(g.content, r.choice(_leaves(json.loads(g.content))), change)


def take_from_another(g: Given, r: random.Random) -> bytes:
    """One value of another label of the same server; its signature among them."""
    path = r.choice([*_leaves(json.loads(g.content)), ("signature",), ("label",)])
    other = json.loads(g.other)
    for step in path:
        other = other[step]
    return _changed(g.content, path, lambda _: other)


def drop_a_field(g: Given, r: random.Random) -> bytes:
    plain = json.loads(g.content)
    at: Any = plain
    for step in r.choice([(), ("label",), ("label", "hardware"), ("label", "image"), ("label", "predicted")]):
        at = at[step]
    del at[r.choice(sorted(at))]
    return label_json.canonical(plain)


def add_a_field(g: Given, r: random.Random) -> bytes:
    plain = json.loads(g.content)
    at: Any = plain
    for step in r.choice([(), ("label",), ("label", "hardware"), ("label", "image"), ("label", "predicted")]):
        at = at[step]
    at[r.choice(["more", "gpu2", "", "__class__", "Server", "signature2"])] = r.choice([1, "x", None, {}, []])
    return label_json.canonical(plain)


def repeat_a_key(g: Given, r: random.Random) -> bytes:
    name = r.choice([b'"server"', b'"id"', b'"gpu"', b'"signature"', b'"expires_at"'])
    at = g.content.index(name)
    return g.content[:at] + name + b":" + r.choice([b'"x"', b"1", b"null"]) + b"," + g.content[at:]


def write_otherwise(g: Given, r: random.Random) -> bytes:
    """The same values in another spelling."""
    plain = json.loads(g.content)
    match r.randrange(5):
        case 0:
            return json.dumps(plain, sort_keys=True).encode()
        case 1:
            return json.dumps(plain, sort_keys=True, indent=r.randint(0, 4)).encode()
        case 2:
            names = list(plain["label"])
            r.shuffle(names)
            plain["label"] = {name: plain["label"][name] for name in names}
            return json.dumps(plain, separators=(",", ":")).encode()
        case 3:
            text = g.content.decode()
            at = r.choice([index for index, letter in enumerate(text) if letter.isalpha()])
            return f"{text[:at]}\\u{ord(text[at]):04x}{text[at + 1 :]}".encode()
        case _:
            return (
                g.content.upper() if r.random() < 0.5 else g.content.decode().encode(r.choice(["utf-16", "utf-8-sig"]))
            )


def sign_otherwise(g: Given, r: random.Random) -> bytes:
    """Another key, or a signature that is the same to careless eyes."""
    signed = label_json.load(g.content)
    match r.randrange(4):
        case 0:
            return label_json.dump(sign(signed.label, OTHER_KEY))
        case 1:
            return label_json.dump(replace(signed, signature=r.randbytes(64).hex()))
        case 2:
            order = 2**252 + 27742317777372353535851937790883648493  # adding it gives the other form of a signature
            half = int.from_bytes(bytes.fromhex(signed.signature[64:]), "little") + order
            return label_json.dump(replace(signed, signature=signed.signature[:64] + half.to_bytes(32, "little").hex()))
        case _:
            return label_json.dump(replace(signed, signature="0" * 128))


def nest(g: Given, r: random.Random) -> bytes:
    depth = r.choice([1, 10, 1000, 5000])
    return (
        b'{"label":' * depth + g.content + b"}" * depth if r.random() < 0.5 else b"[" * depth + g.content + b"]" * depth
    )


MUTATIONS = (
    flip_a_bit, replace_bytes, insert_bytes, delete_bytes, cut, splice, swap_digits, change_a_value, change_a_type,
    take_from_another, drop_a_field, add_a_field, repeat_a_key, write_otherwise, sign_otherwise, nest,
)  # fmt: skip


def mutate_annotations(g: Given, r: random.Random) -> dict[str, str]:
    """Values changed, names changed, some missing, some more."""
    changed = dict(g.annotations)
    name = r.choice(sorted(changed))
    match r.randrange(5):
        case 0:
            at = r.randint(0, len(changed[name]))
            changed[name] = changed[name][:at] + r.choice("0 x\n\té") + changed[name][at + r.randint(0, 1) :]
        case 1:
            del changed[name]
        case 2:
            changed[name + r.choice([".x", "x"])] = changed.pop(name)
        case 3:
            changed["io.tonnage.label." + r.choice(["more", "hardware", "image.more", "predicted.seconds.x", ""])] = "1"
        case _:
            second = r.choice(sorted(changed))
            changed[name], changed[second] = changed[second], changed[name]
    return changed


def is_accepted(read: Callable[[], SignedLabel]) -> str:
    """Empty if it is accepted, else the class of the refusal. Anything but a refusal is a fault and comes through."""
    try:
        verify(read(), SERVERS, now=NOW, seen_ids=(), program_digest=DIGEST)
    except Refused as refusal:
        return type(refusal).__name__
    return ""


def run(count: int, seed: int) -> tuple[int, Counter[str], list[str]]:
    """Mutations tried, refusals by class, and descriptions of what was accepted."""
    generator = random.Random(seed)
    refusals: Counter[str] = Counter()
    accepted: list[str] = []
    tried = 0
    while tried < count:
        if tried % 50 == 0:
            g = given(generator)
            assert is_accepted(lambda: label_json.load(g.content)) == ""
            assert is_accepted(lambda: from_annotations(g.annotations)) == ""
        if generator.random() < 0.1:
            annotations = mutate_annotations(g, generator)
            if annotations == g.annotations:
                continue
            name, reason = "annotations", is_accepted(lambda: from_annotations(annotations))
        else:
            mutation = generator.choice(MUTATIONS)
            content = mutation(g, generator)
            if content in (g.content, g.other):
                continue
            name, reason = mutation.__name__, is_accepted(lambda: label_json.load(content))
        tried += 1
        refusals[reason] += 1
        if not reason:
            accepted.append(name)
    return tried, refusals, accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write results/mutations.json")
    options = parser.parse_args()
    started = time.perf_counter()
    tried, refusals, accepted = run(options.count, options.seed)
    result = {
        "seed": options.seed,
        "mutations": tried,
        "accepted": len(accepted),
        "refused": dict(refusals.most_common()),
    }
    print(json.dumps(result), f"in {time.perf_counter() - started:.0f} s")
    if options.write:
        (HERE / "results" / "mutations.json").write_text(json.dumps(result, indent=2) + "\n")
    if accepted:
        raise SystemExit(f"accepted: {Counter(accepted)}")


if __name__ == "__main__":
    main()
