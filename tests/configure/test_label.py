"""One label has one text; annotations say the same; whatever else is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from placing import KEY, a_label

from tonnage.configure import label_json
from tonnage.configure.label import MOST_BYTES, SignedLabel
from tonnage.configure.label_annotations import PREFIX, from_annotations, to_annotations
from tonnage.configure.refusals import MalformedLabel
from tonnage.configure.signing import sign


@pytest.fixture
def signed() -> SignedLabel:
    return sign(a_label(), KEY)


def refusal(content: bytes) -> str:
    with pytest.raises(MalformedLabel) as error:
        label_json.load(content)
    return error.value.message


def changed(signed: SignedLabel, *path: str, to: Any) -> bytes:
    plain = json.loads(label_json.dump(signed))
    at = plain
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def test_a_label_comes_back_as_it_was(signed: SignedLabel) -> None:
    assert label_json.load(label_json.dump(signed)) == signed


def test_annotations_come_back_as_they_were(signed: SignedLabel) -> None:
    annotations = to_annotations(signed)
    assert annotations[PREFIX + "hardware.gpu"] == "H200"
    assert all(isinstance(value, str) for value in annotations.values())
    assert from_annotations(annotations | {"org.opencontainers.image.title": "mine"}) == signed


def test_an_image_without_a_digest_survives_both_forms() -> None:
    label = a_label()
    signed = sign(replace(label, image=replace(label.image, digest=None)), KEY)
    assert from_annotations(to_annotations(signed)) == label_json.load(label_json.dump(signed)) == signed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("label", "hardware", "cpu_cores"), 8.0, "hardware.cpu_cores = 8.0"),
        (("label", "hardware", "cpu_cores"), True, "hardware.cpu_cores = True"),
        (("label", "hardware", "cpu_cores"), 0, "cpu_cores = 0"),
        (("label", "hardware", "memory_bytes"), 2**60, "memory_bytes = "),
        (("label", "hardware", "pinned_memory"), 1, "hardware.pinned_memory = 1"),
        (("label", "hardware", "communication"), "usb", "hardware.communication = 'usb'"),
        (("label", "hardware", "gpu"), "", "2 x ''"),
        (("label", "predicted", "seconds"), 30, "predicted.seconds = 30"),
        (("label", "predicted", "seconds"), 1e300, "a time that cannot be"),
        (("label", "id"), "short", "id = 'short'"),
        (("label", "server"), "a b", "server = 'a b'"),
        (("label", "server"), None, "label.server = None"),
        (("label", "image", "digest"), "sha256:0", "image.digest = 'sha256:0'"),
        (("label", "image"), [], "image is not an object"),
        (("label", "expires_at"), 0, "which cannot be"),
        (("label", "format"), "tonnage-label-v2", "of the format 'tonnage-label-v2'"),
        (("label", "more"), 1, "has an unknown field 'more'"),
        (("signature",), "00", "not 128 hexadecimal digits"),
        (("signature",), "A" * 128, "not 128 hexadecimal digits"),
    ],
)
def test_a_wrong_value_is_named(signed: SignedLabel, path: tuple[str, ...], value: Any, message: str) -> None:
    assert message in refusal(changed(signed, *path, to=value))


def test_a_missing_field_is_named(signed: SignedLabel) -> None:
    plain = json.loads(label_json.dump(signed))
    del plain["label"]["server"]
    assert "lacks 'server' in label" in refusal(json.dumps(plain).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"null", "not an object"),
        (b"[" * 10000, "nested too deep"),
        (b'{"label":1,"label":2}', "given twice"),
        (b'{"label":NaN}', "NaN is no number"),
        (b"\xff", "not ASCII"),
        (b" " * (MOST_BYTES + 1), "too many for a label"),
        (b"1" * 5000, "not JSON"),
    ],
    ids=["empty", "null", "deep", "twice", "nan", "bytes", "huge", "digits"],
)
def test_what_is_no_label_is_refused(content: bytes, message: str) -> None:
    assert message in refusal(content)


def test_another_spelling_of_the_same_label_is_refused(signed: SignedLabel) -> None:
    text = label_json.dump(signed)
    for other in (
        text + b"\n",
        b" " + text,
        json.dumps(json.loads(text)).encode(),
        text.replace(b"H200", b"\\u0048200"),
    ):
        assert "canonical" in refusal(other)


def test_foreign_annotations_under_the_prefix_are_refused(signed: SignedLabel) -> None:
    for name in ("more", "hardware", "id.x"):
        with pytest.raises(MalformedLabel):
            from_annotations(to_annotations(signed) | {PREFIX + name: "1"})
    with pytest.raises(MalformedLabel, match="no label among"):
        from_annotations({})
