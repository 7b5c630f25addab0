"""What is measured: programs with their arguments.

`python benchmarks/accuracy/measure.py --out . --list` prints them. Blind ones are in `blind_configurations.py`.
"""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Configuration:
    name: str
    program: str
    arguments: tuple[str, ...]
    split: str
    folder: str = "programs"

    @property
    def path(self) -> Path:
        return FOLDER / self.folder / self.program


# Tens of MiB to tens of GiB. Programs of the test part are never used for tuning, not even in another configuration.
TUNE: dict[str, dict[str, str]] = {
    "resnet.py": {
        "resnet18-b4": "--batch-size 4",
        "resnet18-b64": "--batch-size 64",
        "resnet18-b256-amp": "--batch-size 256 --amp",
        "resnet18-cifar-b512": "--batch-size 512 --image-size 32 --classes 10",
        "resnet34-b48-no-momentum": "--arch resnet34 --batch-size 48 --momentum 0",
        "resnet50-b32": "--arch resnet50 --batch-size 32 --workers 2",
        "resnet50-b96-amp-channels-last": "--arch resnet50 --batch-size 96 --amp --channels-last",
        "resnet50-b64-benchmark": "--arch resnet50 --batch-size 64 --benchmark",
        "resnet50-b512": "--arch resnet50 --batch-size 512",
        "resnet101-b64-amp": "--arch resnet101 --batch-size 64 --amp",
    },
    "gpt.py": {
        "gpt-tiny-b4-fp32": "--batch-size 4 --context 128 --layers 4 --heads 4 --dim 256 --vocabulary 8192 "
        "--dtype float32",
        "gpt-small-b8-bf16": "--batch-size 8",
        "gpt-small-b16-fp16-explicit": "--batch-size 16 --attention explicit --dtype float16 --dropout 0.1",
        "gpt-small-b8-fp32-explicit": "--batch-size 8 --attention explicit --dtype float32",
        "gpt-small-b12-accumulate": "--batch-size 12 --context 1024 --accumulate 4",
        "gpt-medium-b32-recompute": "--batch-size 32 --layers 24 --heads 16 --dim 1024 --recompute",
        "gpt-medium-b24-bf16": "--batch-size 24 --context 1024 --layers 24 --heads 16 --dim 1024",
    },
    "unet.py": {
        "unet-b2": "--batch-size 2",
        "unet-b8-512": "--batch-size 8 --size 512",
        "unet-b16-bf16": "--batch-size 16 --bf16",
        "unet-b12-bilinear-w32": "--batch-size 12 --width 32 --bilinear --classes 2",
    },
    "vit.py": {
        "vit-tiny-b16": "--model tiny --batch-size 16",
        "vit-small-b64-fp16": "--model small --batch-size 64 --precision fp16",
        "vit-base-b32": "--batch-size 32",
        "vit-base-b64-bf16-fused": "--batch-size 64 --precision bf16 --optimizer fused",
        "vit-base-b16-loop": "--batch-size 16 --optimizer loop",
        "vit-large-b48-bf16-adafactor": "--model large --batch-size 48 --precision bf16 --optimizer adafactor",
    },
    "bert_encoder.py": {
        "encoder-b16": "--batch-size 16",
        "encoder-b64-fp16": "--batch-size 64 --fp16 --workers 2",
        "encoder-base-b32-keep-grads": "--batch-size 32 --dim 768 --heads 12 --layers 12 --ff 3072 --keep-grads",
        "encoder-base-b64-len256": "--batch-size 64 --max-len 256 --dim 768 --heads 12 --layers 12 --ff 3072 "
        "--dropout 0",
    },
    "hf_causal.py": {
        "hf-gpt2-b4": "--batch-size 4",
        "hf-gpt2-b8-eager": "--batch-size 8 --attention eager",
        "hf-gpt2-b16-autocast": "--batch-size 16 --autocast",
        "hf-llama-b8-bf16": "--family llama --batch-size 8 --hidden 1024 --heads 16 --bf16-weights",
        "hf-llama-b16-checkpointing": "--family llama --batch-size 16 --hidden 1024 --heads 16 --autocast "
        "--gradient-checkpointing",
        "hf-llama-1b-b8-bf16": "--family llama --batch-size 8 --length 1024 --hidden 2048 --heads 32 --layers 20 "
        "--bf16-weights",
    },
    "lstm_lm.py": {
        "lstm-b20": "",
        "lstm-b128-tied": "--batch-size 128 --tied",
        "lstm-large-b64-momentum": "--batch-size 64 --emsize 1500 --nhid 1500 --momentum 0.9 --vocab 30000",
        "gru-b64-bptt70": "--batch-size 64 --bptt 70 --cell GRU",
    },
    "dcgan.py": {
        "dcgan-b128": "--workers 2",
        "dcgan-b1024": "--batch-size 1024",
        "dcgan-128-b256-benchmark": "--batch-size 256 --image-size 128 --benchmark",
    },
    "ddpm.py": {
        "ddpm-b16-c64": "--batch-size 16 --channels 64",
        "ddpm-b128": "--batch-size 128",
        "ddpm-b128-fp16": "--batch-size 128 --fp16",
        "ddpm-64-b32": "--batch-size 32 --size 64",
    },
    "generate.py": {
        "generate-b1": "--batch-size 1",
        "generate-b32": "--batch-size 32 --prompt 512",
        "generate-b64-static": "--batch-size 64 --prompt 512 --static-cache --top-k 50",
        "generate-1b-b16-bf16": "--batch-size 16 --prompt 1024 --dim 2048 --heads 32 --layers 24 --dtype bfloat16",
        "generate-b16-fp32": "--batch-size 16 --dtype float32",
    },
    "vgg.py": {
        "vgg16-b16-adam": "--batch-size 16",
        "vgg16-b64-sgd": "--batch-size 64 --optimizer sgd",
        "vgg16-bn-b128-rmsprop": "--batch-size 128 --bn --optimizer rmsprop",
        "vgg11-b32-adagrad": "--depth 11 --batch-size 32 --optimizer adagrad",
    },
    "mobilenet.py": {
        "mobilenet-b64": "",
        "mobilenet-b256-fp16-channels-last": "--batch-size 256 --amp fp16 --channels-last",
        "mobilenet-b128-bf16-ema": "--batch-size 128 --amp bf16 --ema",
        "mobilenet-w2-b96": "--batch-size 96 --width 2",
    },
    "densenet.py": {
        "densenet121-b32": "",
        "densenet121-b64-recompute": "--batch-size 64 --recompute",
        "densenet169-b96-fp16": "--batch-size 96 --blocks 6,12,32,32 --fp16",
    },
    "llama.py": {
        "llama-b4-lion": "",
        "llama-b16-recompute": "--batch-size 16 --recompute",
        "llama-b4-fp32-adamw": "--seq-len 512 --param-dtype float32 --optimizer adamw",
        "llama-1b-b8-adamw": "--batch-size 8 --dim 2048 --layers 20 --heads 32 --kv-heads 8 --optimizer adamw",
    },
    "dlrm.py": {
        "dlrm-b2048": "",
        "dlrm-b16384-sgd": "--batch-size 16384 --tables 26 --optimizer sgd",
    },
    "matrix_factorization.py": {
        "factorization-r128": "",
        "factorization-1m-users-foreach": "--users 1000000 --batch-size 262144 --foreach",
    },
    "distillation.py": {
        "distillation-b128": "",
        "distillation-b512-half-teacher": "--batch-size 512 --half-teacher",
    },
    "vae.py": {
        "vae-conv-b128": "",
        "vae-conv-128-b256": "--batch-size 256 --size 128",
        "vae-dense-b1024": "--kind dense --batch-size 1024",
    },
    "hf_encoder.py": {
        "hf-bert-b16": "",
        "hf-bert-b64-fp16": "--batch-size 64 --fp16",
        "hf-bert-b32-frozen-embeddings": "--batch-size 32 --freeze-embeddings",
        "hf-bert-b128-inference": "--batch-size 128 --inference",
        "hf-vit-b32": "--model vit --batch-size 32",
        "hf-vit-b128-inference-fp16": "--model vit --batch-size 128 --inference --fp16",
    },
    "wavenet.py": {
        "wavenet-b4": "",
        "wavenet-b8-bf16": "--batch-size 8 --samples 16000 --bf16",
    },
    "hf_trainer.py": {
        "trainer-gpt2-b8": "",
        "trainer-gpt2-b16-bf16-accumulate": "--batch-size 16 --bf16 --accumulate 2 --evaluate",
        "trainer-bert-b32-fp16-checkpointing": "--model bert --batch-size 32 --fp16 --gradient-checkpointing",
    },
}
TEST: dict[str, dict[str, str]] = {
    "convnext.py": {
        "convnext-nano-b32": "--size nano",
        "convnext-tiny-b32-ema": "--ema",
        "convnext-tiny-b64-bf16-channels-last": "--batch-size 64 --bf16 --channels-last",
        "convnext-small-b96": "--size small --batch-size 96",
    },
    "swin.py": {
        "swin-b16": "",
        "swin-b64-fp16": "--batch-size 64 --fp16",
        "swin-b128-inference": "--batch-size 128 --eval",
    },
    "mae.py": {
        "mae-base-b64-fp16": "",
        "mae-base-b128-fp32": "--batch-size 128 --no-amp",
        "mae-small-b64-accumulate": "--dim 384 --heads 6 --accum-iter 2 --num-workers 2",
    },
    "efficientnet.py": {
        "efficientnet-b0-b32": "",
        "efficientnet-b0-b128-fp16": "--batch-size 128 --mixed fp16",
        "efficientnet-b3-b32-300": "--width 1.2 --depth 1.4 --image-size 300",
        "efficientnet-b0-b256-inference-half": "--batch-size 256 --mixed fp16 --inference",
    },
    "seq2seq.py": {
        "seq2seq-b32": "",
        "seq2seq-b128-bf16": "--batch-size 128 --amp",
        "seq2seq-b64-len128-accumulate": "--batch-size 64 --length 128 --update-freq 2",
    },
    "hf_seq2seq.py": {
        "hf-t5-b8": "",
        "hf-t5-b32-bf16-adafactor": "--batch-size 32 --bf16 --adafactor",
        "hf-t5-b32-generate": "--batch-size 32 --generate 16 --bf16",
        "hf-whisper-b8": "--model whisper --length 1500 --dim 384 --layers 4 --heads 6",
        "hf-whisper-b16-bf16": "--model whisper --length 1500 --batch-size 16 --bf16",
    },
    "moe.py": {
        "moe-b8": "",
        "moe-b16-bf16": "--batch-size 16 --experts 16 --bf16",
    },
    "gru_classifier.py": {
        "packed-gru-b64": "",
        "packed-lstm-b256": "--batch-size 256 --cell lstm --max-length 400",
    },
    "gnn.py": {
        "gnn-conv-b4": "",
        "gnn-conv-b32": "--batch-size 32",
        "gnn-attention-b8": "--batch-size 8 --layer attention",
    },
    "pointnet.py": {
        "pointnet-b64": "--batch-size 64 --k 0",
        "edgeconv-b16": "",
        "edgeconv-b32-2048": "--batch-size 32 --points 2048",
    },
    "video3d.py": {
        "r3d-b4": "",
        "r3d-b16-amp": "--batch-size 16 --amp",
        "r2plus1d-b8-accumulate": "--batch-size 8 --factored --iter-size 2",
    },
    "simclr.py": {
        "simclr-b256": "",
        "simclr-b1024-fp16-adam": "--batch-size 1024 --fp16 --optimizer adam",
    },
    "ctc_speech.py": {
        "ctc-b8": "",
        "ctc-b32-gpu-features": "--batch-size 32 --gpu-features",
    },
    "ppo.py": {
        "ppo-b256": "",
        "ppo-b4096": "--batch-size 4096 --num-envs 64 --rollout 128",
    },
    "lora.py": {
        "lora-b4": "",
        "lora-b16-recompute": "--batch-size 16 --recompute",
        "lora-3b-b8": "--batch-size 8 --dim 2560 --heads 20 --layers 32",
    },
    "classify_folder.py": {
        "resnext-b64-inference": "",
        "resnext-b256-inference-half": "--batch-size 256 --half --channels-last --keep-on-gpu --workers 0",
    },
}


def configurations_of(
    programs: dict[str, dict[str, str]], split: str, folder: str = "programs"
) -> tuple[Configuration, ...]:
    return tuple(
        Configuration(name, program, tuple(arguments.split()), split, folder)
        for program, named in programs.items()
        for name, arguments in named.items()
    )


CONFIGURATIONS = configurations_of(TUNE, "tune") + configurations_of(TEST, "test")

# Arguments that make each program small enough for any machine, for trying it out.
TINY: dict[str, tuple[str, ...]] = {
    "bert_encoder.py": (
        "--batch-size 2 --max-len 16 --vocab 50 --dim 32 --heads 2 --layers 1 --ff 64",
        "--batch-size 2 --max-len 16 --vocab 50 --dim 32 --heads 2 --layers 1 --ff 64 --keep-grads --workers 1",
    ),
    "dcgan.py": ("--batch-size 2 --image-size 16 --nz 8 --ngf 8 --ndf 8",),
    "ddpm.py": ("--batch-size 2 --size 16 --channels 32 --blocks 1",),
    "generate.py": (
        "--batch-size 2 --prompt 8 --new-tokens 3 --dim 32 --heads 2 --layers 1 --vocab 50 --dtype float32",
        "--batch-size 2 --prompt 8 --new-tokens 3 --dim 32 --heads 2 --layers 1 --vocab 50 --static-cache --top-k 5",
    ),
    "gpt.py": (
        "--batch-size 2 --context 16 --layers 1 --heads 2 --dim 32 --vocabulary 50",
        "--batch-size 2 --context 16 --layers 1 --heads 2 --dim 32 --vocabulary 50 --attention explicit --recompute "
        "--accumulate 2 --dtype float32",
    ),
    "hf_causal.py": (
        "--batch-size 2 --length 16 --hidden 64 --layers 1 --heads 4 --vocab 50",
        "--family llama --batch-size 2 --length 16 --hidden 64 --layers 1 --heads 4 --vocab 50 --bf16-weights "
        "--gradient-checkpointing",
    ),
    "lstm_lm.py": ("--batch-size 2 --bptt 5 --vocab 50 --emsize 16 --nhid 16 --tied",),
    "resnet.py": (
        "--batch-size 2 --image-size 32 --base-width 8 --classes 10",
        "--batch-size 2 --image-size 32 --base-width 8 --classes 10 --arch resnet50 --channels-last",
    ),
    "unet.py": (
        "--batch-size 2 --size 32 --width 8 --levels 2 --classes 3",
        "--batch-size 2 --size 32 --width 8 --bilinear",
    ),
    "vit.py": (
        "--model tiny --depth 1 --image-size 32 --batch-size 2",
        "--model tiny --depth 1 --image-size 32 --batch-size 2 --optimizer adafactor --precision bf16",
    ),
    "classify_folder.py": ("--batch-size 2 --size 32 --width 32 --depths 1 1 1 1 --groups 4",),
    "convnext.py": ("--size nano --batch-size 2 --image-size 32 --classes 10 --ema --channels-last",),
    "ctc_speech.py": (
        "--batch-size 2 --seconds 1 --mels 16 --hidden 16 --layers 1",
        "--batch-size 2 --seconds 1 --mels 16 --hidden 16 --layers 2 --gpu-features",
    ),
    "densenet.py": (
        "--batch-size 2 --blocks 2,2 --growth 8 --image-size 32",
        "--batch-size 2 --blocks 2,2 --growth 8 --image-size 32 --recompute",
    ),
    "distillation.py": ("--batch-size 2 --size 16 --depth 2 --teacher-width 8 --student-width 4",),
    "dlrm.py": ("--batch-size 4 --tables 3 --rows 20 --dim 8 --bottom 16 --top 16",),
    "efficientnet.py": (
        "--batch-size 2 --image-size 32 --width 0.3 --classes 10",
        "--batch-size 2 --image-size 32 --width 0.3 --classes 10 --inference",
    ),
    "gnn.py": (
        "--batch-size 2 --nodes 20 --degree 3 --features 8 --hidden 16",
        "--batch-size 2 --nodes 20 --degree 3 --features 8 --hidden 16 --layer attention",
    ),
    "gru_classifier.py": ("--batch-size 2 --max-length 12 --vocab 50 --emb 8 --hidden 8",),
    "hf_encoder.py": (
        "--batch-size 2 --length 16 --hidden 32 --layers 1 --heads 2 --vocab 50 --freeze-embeddings",
        "--model vit --batch-size 2 --image-size 32 --hidden 32 --layers 1 --heads 2 --inference",
    ),
    "hf_seq2seq.py": (
        "--batch-size 2 --length 16 --dim 32 --layers 1 --heads 2 --vocab 50",
        "--batch-size 2 --length 16 --dim 32 --layers 1 --heads 2 --vocab 50 --generate 3",
        "--model whisper --batch-size 2 --length 32 --dim 32 --layers 1 --heads 2 --vocab 50",
    ),
    "hf_trainer.py": (
        "--batch-size 2 --length 16 --hidden 32 --layers 1 --heads 2 --vocab 50 --evaluate",
        "--model bert --batch-size 2 --length 16 --hidden 32 --layers 1 --heads 2 --vocab 50 --accumulate 2",
    ),
    "llama.py": (
        "--batch-size 2 --seq-len 16 --dim 32 --layers 1 --heads 4 --kv-heads 2 --vocab 50",
        "--batch-size 2 --seq-len 16 --dim 32 --layers 1 --heads 4 --kv-heads 2 --vocab 50 --recompute "
        "--optimizer adamw --param-dtype float32",
    ),
    "lora.py": (
        "--batch-size 2 --length 16 --dim 32 --heads 2 --layers 1 --vocab 50",
        "--batch-size 2 --length 16 --dim 32 --heads 2 --layers 2 --vocab 50 --recompute",
    ),
    "mae.py": (
        "--batch-size 2 --size 32 --patch 8 --dim 32 --depth 1 --heads 2 --decoder-dim 32 --decoder-depth 1 --no-amp "
        "--accum-iter 2",
    ),
    "matrix_factorization.py": ("--users 50 --items 20 --rank 4 --batch-size 16 --ratings 100",),
    "mobilenet.py": ("--batch-size 2 --size 32 --width 0.25 --classes 10 --ema --channels-last",),
    "moe.py": ("--batch-size 2 --length 16 --dim 32 --hidden 32 --layers 1 --heads 2 --experts 4 --vocab 50",),
    "pointnet.py": ("--batch-size 2 --points 32 --k 4 --embed 32", "--batch-size 2 --points 32 --k 0 --embed 32"),
    "ppo.py": ("--batch-size 8 --num-envs 2 --rollout 8 --size 44 --hidden 16",),
    "seq2seq.py": ("--batch-size 2 --length 12 --vocab 50 --dim 32 --heads 2 --layers 1 --ff 32 --update-freq 2",),
    "simclr.py": (
        "--batch-size 4 --size 16 --width 4 --blocks 1 --projection 8",
        "--batch-size 4 --size 16 --width 4 --blocks 1 --projection 8 --optimizer adam",
    ),
    "swin.py": (
        "--batch-size 2 --image-size 56 --dim 32 --depths 2 2",
        "--batch-size 2 --image-size 56 --dim 32 --depths 2 --eval",
    ),
    "vae.py": (
        "--batch-size 2 --size 16 --width 4 --latent 4",
        "--kind dense --batch-size 2 --size 8 --width 2 --latent 4",
    ),
    "vgg.py": (
        "--depth 11 --batch-size 2 --image-size 32 --classes 10 --hidden 16 --width 0.1 --bn",
        "--depth 11 --batch-size 2 --image-size 32 --classes 10 --hidden 16 --width 0.1 --optimizer rmsprop",
    ),
    "video3d.py": (
        "--batch-size 2 --frames 4 --size 16 --width 8 --depths 1-1",
        "--batch-size 2 --frames 4 --size 16 --width 8 --depths 1-1 --factored --iter-size 2",
    ),
    "wavenet.py": ("--batch-size 2 --samples 64 --channels 8 --skip 8 --cycles 1 --layers 3",),
}
