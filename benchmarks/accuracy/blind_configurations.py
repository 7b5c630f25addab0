"""A second set of programs, of families that are in neither of the other parts. They are measured and compared, and
nothing is ever tuned by them: no run takes them unless it is asked for with `--split blind`.
"""

from configurations import configurations_of

BLIND: dict[str, dict[str, str]] = {
    "inception.py": {
        "googlenet-b64": "",
        "googlenet-b384": "--batch-size 384",
        "googlenet-b256-fp16-channels-last": "--batch-size 256 --amp --channels-last",
    },
    "shufflenet.py": {
        "shufflenet-x05-b16": "--width x0.5 --batch-size 16",
        "shufflenet-x2-b256-bf16": "--width x2.0 --batch-size 256 --bf16",
        "shufflenet-x1-b512-inference-half": "--batch-size 512 --inference --half",
    },
    "deeplab.py": {
        "deeplab-b4-321": "--batch-size 4 --crop 321",
        "deeplab-b8": "",
        "deeplab-b32-bf16": "--batch-size 32 --bf16",
    },
    "fpn_focal.py": {
        "fpn-b2": "--batch-size 2",
        "fpn-b16": "--batch-size 16",
        "fpn-b16-fp16-768": "--batch-size 16 --image-size 768 --fp16",
    },
    "edsr.py": {
        "edsr-baseline-b16": "",
        "edsr-large-b16-x4": "--blocks 32 --feats 256 --factor 4",
        "edsr-large-b64-fp16": "--batch-size 64 --blocks 32 --feats 256 --fp16",
        "edsr-enlarge-b2-fp16": "--enlarge --batch-size 2 --fp16",
    },
    "stylegan.py": {
        "stylegan-64-b16-r1": "",
        "stylegan-128-b32": "--batch-size 32 --size 128 --channels 512 --r1 0",
        "stylegan-128-b16-r1": "--size 128 --channels 512",
    },
    "vqvae.py": {
        "vqvae-b256": "",
        "vqvae-128-b128": "--batch-size 128 --size 128",
        "vqvae-256-b64-bf16": "--batch-size 64 --size 256 --hidden 256 --blocks 4 --codes 1024 --bf16",
    },
    "realnvp.py": {
        "realnvp-b512": "",
        "realnvp-b8192-wide": "--batch-size 8192 --dim 64 --hidden 1024 --couplings 16",
    },
    "mixer.py": {
        "mixer-s16-b32-nadam": "--batch-size 32 --opt nadam",
        "mixer-b16-b64-tf32": "--model b16",
        "mixer-l16-b128-bf16": "--model l16 --batch-size 128 --amp",
        "mixer-s16-b128-radam": "--batch-size 128 --opt radam",
    },
    "perceiver.py": {
        "perceiver-b2": "--batch-size 2 --size 64",
        "perceiver-b16": "--batch-size 16",
        "perceiver-b16-fp16-224": "--batch-size 16 --size 224 --latents 512 --half",
    },
    "dual_encoder.py": {
        "dual-encoder-small-b16": "--batch-size 16 --vision-width 256 --vision-layers 4 --text-width 256 --text-layers 4",
        "dual-encoder-b64": "",
        "dual-encoder-b512-bf16": "--batch-size 512 --precision amp_bf16",
    },
    "alibi_gqa.py": {
        "alibi-gqa-b4": "",
        "alibi-gqa-b16-bf16": "--batch-size 16 --length 1024 --bf16",
        "alibi-gqa-large-b4-bf16": "--length 2048 --dim 1536 --layers 16 --heads 16 --bf16",
        "alibi-gqa-b8-score-bf16": "--batch-size 8 --length 1024 --score --bf16",
    },
    "state_space.py": {
        "state-space-b64": "",
        "state-space-b32-4096": "--batch_size 32 --length 4096 --d_model 256 --n_layers 6",
        "state-space-b64-bf16": "--bf16 --d_model 512",
    },
    "conformer.py": {
        "conformer-small-b4": "--batch-size 4 --frames 400 --dim 144 --layers 4",
        "conformer-b16": "--batch-size 16",
        "conformer-b32-bf16-accumulate": "--batch-size 32 --frames 1600 --dim 512 --heads 8 --amp --accum 2",
    },
    "tcn.py": {
        "tcn-b32": "",
        "tcn-b256-wide": "--batch-size 256 --seq-len 1000 --hidden 256 --dropout 0.1 --clip 1",
        "tcn-b64-rprop": "--batch-size 64 --hidden 64 --optim Rprop",
    },
    "convlstm.py": {
        "convlstm-b8": "",
        "convlstm-b32-128": "--batch-size 32 --size 128",
        "convlstm-b16-fp16-wide": "--batch-size 16 --size 128 --hidden 128 --fp16",
    },
    "two_tower.py": {
        "two-tower-b4096": "",
        "two-tower-b16384-5m": "--batch-size 16384 --items 5000000 --dim 128",
        "two-tower-b8192-sparse": "--batch-size 8192 --items 2000000 --sparse",
    },
    "ft_transformer.py": {
        "ft-transformer-b256": "",
        "ft-transformer-b4096": "--batch_size 4096 --n_num 60",
        "ft-transformer-b4096-bf16-wide": "--batch_size 4096 --n_num 100 --d_token 256 --n_layers 6 --amp",
    },
    "nerf.py": {
        "nerf-b1024": "",
        "nerf-b8192": "--batch-size 8192",
        "nerf-b8192-fp16-wide": "--batch-size 8192 --width 512 --fp16",
    },
    "siren.py": {
        "siren-b4096": "",
        "siren-b262144": "--batch-size 262144 --depth 4",
        "siren-b65536-sgd-wide": "--batch-size 65536 --width 1024 --sgd",
    },
    "graphsage.py": {
        "graphsage-20k": "",
        "graphsage-500k": "--nodes 500000 --batch-size 50000",
        "graphsage-100k-max": "--nodes 100000 --aggregate max",
    },
    "dqn.py": {
        "dqn-b128": "",
        "dqn-pixels-b32": "--observation pixels --batch-size 32 --hidden 512",
        "dqn-pixels-b2048": "--observation pixels --batch-size 2048 --hidden 512 --memory 100000",
    },
    "adapters.py": {
        "adapters-base-b8": "--batch-size 8 --dim 768 --layers 12 --heads 12",
        "adapters-large-b64-accumulate": "--batch-size 64 --accumulate 2",
        "adapters-large-b128-512": "--batch-size 128 --length 512",
    },
    "dit_sample.py": {
        "dit-s-b1": "--model S --batch-size 1",
        "dit-b-b32-fp16": "--batch-size 32 --dtype float16",
        "dit-xl-b16-bf16-512": "--model XL --batch-size 16 --latent 64 --dtype bfloat16",
        "dit-xl-b8": "--model XL",
    },
    "hf_decoders.py": {
        "hf-opt-b4": "",
        "hf-mistral-b8-bf16": "--family mistral --batch-size 8 --length 1024 --hidden 1024 --heads 16 --bf16",
        "hf-qwen2-b2": "--family qwen2 --batch-size 2 --hidden 512 --heads 8 --layers 8 --length 256",
        "hf-qwen2-1b-b8-bf16": "--family qwen2 --batch-size 8 --length 1024 --hidden 1536 --intermediate 8960 "
        "--layers 28 --heads 12 --kv-heads 2 --vocab 151936 --bf16",
        "hf-mistral-b16-score-bf16": "--family mistral --batch-size 16 --length 1024 --hidden 2048 --heads 16 --score "
        "--bf16",
    },
    "hf_mixed.py": {
        "hf-roberta-b32-fp16": "--batch-size 32 --length 256 --amp fp16",
        "hf-bart-b8": "--model bart --batch-size 8 --length 256 --layers 6",
        "hf-bart-b64-bf16": "--model bart --batch-size 64 --length 512 --layers 6 --amp bf16",
        "hf-clip-b64": "--model clip --batch-size 64 --length 77",
        "hf-deit-b128-bf16": "--model deit --batch-size 128 --amp bf16",
        "hf-deit-small-b256-inference-fp16": "--model deit --dim 384 --heads 6 --batch-size 256 --amp fp16 --inference",
        "hf-wav2vec2-b8": "--model wav2vec2 --batch-size 8",
        "hf-wav2vec2-b32-bf16-10s": "--model wav2vec2 --batch-size 32 --seconds 10 --amp bf16",
    },
}

BLIND_CONFIGURATIONS = configurations_of(BLIND, "blind", folder="blind")

# Arguments that make each program small enough for any machine, for trying it out.
TINY: dict[str, tuple[str, ...]] = {
    "inception.py": ("--batch-size 2 --size 64 --classes 10", "--batch-size 2 --size 64 --classes 10 --channels-last"),
    "shufflenet.py": (
        "--width tiny --batch-size 2 --res 64",
        "--width tiny --batch-size 2 --res 64 --inference",
    ),
    "deeplab.py": ("--batch-size 2 --crop 65 --width 8 --depths 1 1 1 1",),
    "fpn_focal.py": ("--batch-size 2 --image-size 128 --width 16 --pyramid 16 --num-classes 5",),
    "edsr.py": (
        "--batch-size 2 --patch 8 --blocks 1 --feats 8 --factor 4",
        "--batch-size 1 --blocks 1 --feats 8 --enlarge --frame 16 24",
    ),
    "stylegan.py": ("--batch-size 2 --size 16 --style 16 --channels 16",),
    "vqvae.py": ("--batch-size 2 --size 16 --hidden 8 --residual 4 --codes 16 --dim 4",),
    "realnvp.py": ("--batch-size 8 --dim 4 --hidden 8 --couplings 2 --rows 32",),
    "mixer.py": (
        "--model nano --batch-size 2 --img-size 32 --num-classes 10",
        "--model nano --batch-size 2 --img-size 32 --num-classes 10 --opt radam",
    ),
    "perceiver.py": ("--batch-size 2 --size 16 --bands 4 --latents 8 --dim 32 --layers 1 --classes 10",),
    "dual_encoder.py": (
        "--batch-size 2 --image-size 32 --patch 16 --vision-width 32 --vision-layers 1 --text-width 32 --text-layers 1 "
        "--context 8 --vocab 50 --embed 16",
    ),
    "alibi_gqa.py": (
        "--batch-size 2 --length 16 --dim 32 --layers 1 --heads 4 --groups 2 --vocab 50",
        "--batch-size 2 --length 16 --dim 32 --layers 1 --heads 4 --groups 2 --vocab 50 --score",
    ),
    "state_space.py": ("--batch_size 2 --length 32 --d_model 8 --d_state 8 --n_layers 1",),
    "conformer.py": ("--batch-size 2 --frames 64 --mels 16 --dim 16 --heads 2 --layers 1 --kernel 7 --accum 2",),
    "tcn.py": ("--batch-size 2 --seq-len 32 --hidden 4 --levels 2 --clip 1",),
    "convlstm.py": ("--batch-size 2 --size 16 --observed 2 --horizon 2 --hidden 8 --layers 1 --kernel 3",),
    "two_tower.py": (
        "--batch-size 4 --items 50 --tags 20 --history 3 --dim 8 --hidden 8",
        "--batch-size 4 --items 50 --tags 20 --history 3 --dim 8 --hidden 8 --sparse",
    ),
    "ft_transformer.py": ("--batch_size 4 --n_num 3 --n_cat 2 --d_token 16 --n_layers 1 --n_heads 2 --rows 20",),
    "nerf.py": ("--batch-size 4 --coarse 8 --fine 8 --width 16 --depth 2",),
    "siren.py": ("--batch-size 16 --width 8 --depth 1", "--batch-size 16 --width 8 --depth 1 --sgd"),
    "graphsage.py": (
        "--batch-size 8 --nodes 20 --degree 3 --features 8 --hidden 8",
        "--batch-size 8 --nodes 20 --degree 3 --features 8 --hidden 8 --aggregate max",
    ),
    "dqn.py": (
        "--batch-size 4 --hidden 8 --memory 20",
        "--observation pixels --batch-size 4 --hidden 8 --memory 20 --size 44",
    ),
    "adapters.py": (
        "--batch-size 2 --length 16 --vocab 50 --dim 32 --layers 1 --heads 2 --bottleneck 4 --accumulate 2",
    ),
    "dit_sample.py": ("--model XS --batch-size 2 --latent 8",),
    "hf_decoders.py": (
        "--batch-size 2 --length 16 --vocab 50 --hidden 32 --layers 1 --heads 4",
        "--family mistral --batch-size 2 --length 16 --vocab 50 --hidden 32 --layers 1 --heads 4 --window 8 --score",
        "--family qwen2 --batch-size 2 --length 16 --vocab 50 --hidden 32 --layers 1 --heads 4 --bf16",
    ),
    "hf_mixed.py": (
        "--batch-size 2 --length 16 --dim 32 --layers 1 --heads 2 --vocab 50",
        "--model bart --batch-size 2 --length 16 --dim 32 --layers 1 --heads 2 --vocab 50",
        "--model clip --batch-size 2 --length 16 --image-size 32 --dim 32 --layers 1 --heads 2 --vocab 50",
        "--model deit --batch-size 2 --image-size 32 --dim 32 --layers 1 --heads 2 --inference",
        "--model wav2vec2 --batch-size 2 --seconds 0.2 --dim 32 --layers 1 --heads 2",
    ),
}
