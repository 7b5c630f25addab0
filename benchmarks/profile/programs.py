"""The programs whose indicators are compared: training of different kinds, limited by the GPU and by the host."""

from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "accuracy" / "programs"
BLIND = HERE.parent / "accuracy" / "blind"
MANY = "100000"  # steps; the benchmark ends the program

ON_GPU: dict[str, tuple[Path, str]] = {
    "resnet50-b64": (PROGRAMS / "resnet.py", "--arch resnet50 --batch-size 64 --workers 2"),
    "gpt-small-b8-bf16": (PROGRAMS / "gpt.py", "--batch-size 8"),
    "vit-base-b32": (PROGRAMS / "vit.py", "--batch-size 32"),
    "unet-b8-512": (PROGRAMS / "unet.py", "--batch-size 8 --size 512"),
    "bert": (PROGRAMS / "bert_encoder.py", ""),
    "lstm": (PROGRAMS / "lstm_lm.py", ""),
    "dcgan": (PROGRAMS / "dcgan.py", ""),
    "dlrm": (PROGRAMS / "dlrm.py", ""),
    "convnext": (PROGRAMS / "convnext.py", ""),
    "densenet": (PROGRAMS / "densenet.py", ""),
    "deeplab-b8": (BLIND / "deeplab.py", ""),
    "edsr-b16": (BLIND / "edsr.py", ""),
}
ON_CPU: dict[str, tuple[Path, str]] = {
    "small": (HERE / "small_training.py", "--width 256"),
    "larger": (HERE / "small_training.py", "--width 512"),
}
