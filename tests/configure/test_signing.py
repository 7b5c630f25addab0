"""A label is deployed only if everything about it holds; each reason against it has an error of its own."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placing import DIGEST, KEY, NOW, SERVERS, a_label

from tonnage.configure.configuration import HardwareConfiguration
from tonnage.configure.label import Label
from tonnage.configure.refusals import BadSignature, Expired, NotYetValid, OtherProgram, Replayed, UnknownServer
from tonnage.configure.signing import KnownServer, sign, verify
from tonnage.errors import Refused

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "configure"))
OTHER_KEY = bytes(range(1, 33))


def judge(label: Label, **changes: object) -> Label:
    arguments: dict[str, object] = {"now": NOW, "seen_ids": (), "program_digest": DIGEST}
    return verify(sign(label, KEY), SERVERS, **(arguments | changes))  # type: ignore[arg-type]


def test_a_good_label_is_accepted() -> None:
    assert judge(a_label()) == a_label()


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(UnknownServer, match="from the server elsewhere"):
        judge(a_label(server="elsewhere"))


def test_a_forged_signature_is_refused() -> None:
    with pytest.raises(BadSignature, match="forged or changed"):
        verify(sign(a_label(), OTHER_KEY), SERVERS, now=NOW, seen_ids=(), program_digest=DIGEST)


def test_a_changed_label_is_refused() -> None:
    signed = sign(a_label(), KEY)
    more = replace(signed.label, hardware=replace(signed.label.hardware, gpu_count=8))
    with pytest.raises(BadSignature):
        verify(replace(signed, label=more), SERVERS, now=NOW, seen_ids=(), program_digest=DIGEST)


def test_an_expired_label_is_refused() -> None:
    with pytest.raises(Expired, match="expired 0 seconds ago"):
        judge(a_label(), now=NOW + 3600)
    judge(a_label(), now=NOW + 3599)


def test_a_label_from_the_future_is_refused() -> None:
    with pytest.raises(NotYetValid):
        judge(a_label(), now=NOW - 10 - 61)
    judge(a_label(), now=NOW - 10 - 60)


def test_a_label_is_deployed_once() -> None:
    with pytest.raises(Replayed):
        judge(a_label(), seen_ids={a_label().id})


def test_another_program_is_refused() -> None:
    with pytest.raises(OtherProgram, match="sha256:cccccccccccc"):
        judge(a_label(), program_digest="sha256:" + "c" * 64)


def test_a_server_with_a_damaged_key_is_refused() -> None:
    servers = {"laboratory": KnownServer(name="laboratory", public_key=b"short")}
    with pytest.raises(BadSignature):
        verify(sign(a_label(), KEY), servers, now=NOW, seen_ids=(), program_digest=DIGEST)


@pytest.mark.parametrize("kind", [BadSignature, Expired, NotYetValid, OtherProgram, Replayed, UnknownServer])
def test_every_refusal_is_one(kind: type[Refused]) -> None:
    assert issubclass(kind, Refused)
    assert (kind.exit_code, kind.http_status) == (2, 403)


def test_no_mutation_is_accepted() -> None:
    from mutations import run

    tried, refusals, accepted = run(2000, seed=1)
    assert accepted == []
    assert sum(refusals.values()) == tried == 2000


@settings(max_examples=50, deadline=None)
@given(
    cores=st.integers(1, 2**53 - 1),
    gpu=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20),
    workers=st.integers(0, 1000), pinned=st.booleans(), seconds=st.floats(1e-6, 1e12),
)  # fmt: skip
def test_whatever_is_signed_is_read_back(cores: int, gpu: str, workers: int, pinned: bool, seconds: float) -> None:
    from tonnage.configure import label_json
    from tonnage.configure.label_annotations import from_annotations, to_annotations

    hardware = HardwareConfiguration(
        node_type="a", gpu=gpu, gpu_count=1, communication="pcie", pcie_generation=None, pcie_lanes=None,
        cpu_cores=cores, sockets=1, memory_bytes=1, loader_workers=workers, pinned_memory=pinned,
    )  # fmt: skip
    predicted = replace(a_label().predicted, seconds=seconds, low_seconds=seconds, high_seconds=seconds)
    signed = sign(a_label(hardware=hardware, predicted=predicted), KEY)
    assert label_json.load(label_json.dump(signed)) == from_annotations(to_annotations(signed)) == signed
