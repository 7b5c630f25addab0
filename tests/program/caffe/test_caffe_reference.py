"""Public models with weights, against what OpenCV's reader computed from them."""

from pathlib import Path

import numpy as np
import pytest

from tonnage.program.caffe import load

torch = pytest.importorskip("torch")
FOLDERS = [parent / "shared" / "data" / "caffe" for parent in Path(__file__).resolve().parents]
FOLDER = next((folder for folder in FOLDERS if folder.is_dir()), Path())


@pytest.mark.skipif(Path() == FOLDER, reason="shared/data/caffe is not beside the checkout")
@pytest.mark.parametrize("name", ["squeezenet", "det1"])
def test_public_models_give_their_reference_outputs(name: str) -> None:
    reference = np.load(FOLDER / f"{name}_reference.npz")
    model = load(FOLDER / f"{name}.prototxt", FOLDER / f"{name}.caffemodel", shapes={"data": reference["input"].shape})

    found = model.run({"data": reference["input"]})
    with torch.inference_mode():
        compiled = model.module()(torch.from_numpy(reference["input"]))
    wanted = {key: reference[key] for key in reference.files if key != "input"}
    assert wanted
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key].reshape(values.shape), values, atol=1e-4)
    for fast, slow in zip(compiled, found.values(), strict=True):
        np.testing.assert_allclose(fast.numpy(), slow, atol=1e-4)
