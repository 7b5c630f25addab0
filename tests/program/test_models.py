"""Architectures whose code does what others do not: routes tokens, sorts, scans, draws. Tiny, from a configuration."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from capturing import capture_text, peak_bytes

TRAIN = """
import transformers as t
model = {model}.cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    batch = {batch}
    loss = model(**{{name: value.cuda() for name, value in batch.items()}}).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
GENERATE = """
import transformers as t
model = {model}.cuda().eval()
tokens = torch.randint(5, 120, (2, 12)).cuda()
mask = torch.ones_like(tokens)
mask[1, :3] = 0
model.generate(tokens, attention_mask=mask, max_new_tokens=8, {options})
"""
SIZES = "vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64"
TEXT = (
    "dict(input_ids=torch.randint(5, 120, (2, 32)), attention_mask=torch.ones(2, 32).long(),"
    " labels=torch.randint(5, 120, (2, 32)))"
)
MIXTRAL = f"t.MixtralForCausalLM(t.MixtralConfig({SIZES}, num_key_value_heads=2, num_local_experts=4))"
BART = (
    "t.BartForConditionalGeneration(t.BartConfig(vocab_size=128, d_model=64, encoder_layers=1, decoder_layers=1,"
    " encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4))"
)

TRAINED = {
    "mixture of experts": (MIXTRAL, TEXT),
    "state space": (
        "t.MambaForCausalLM(t.MambaConfig(vocab_size=128, hidden_size=64, num_hidden_layers=2, state_size=8))",
        TEXT,
    ),
    "disentangled attention": (f"t.DebertaV2ForMaskedLM(t.DebertaV2Config({SIZES}))", TEXT),
    "sliding windows": (f"t.LongformerForMaskedLM(t.LongformerConfig({SIZES}, attention_window=[16, 16]))", TEXT),
    "fourier transforms": (
        f"t.FNetForMaskedLM(t.FNetConfig({SIZES}))",
        "dict(input_ids=torch.randint(5, 120, (2, 32)), labels=torch.randint(5, 120, (2, 32)))",
    ),
    "connectionist loss": (
        "t.Wav2Vec2ForCTC(t.Wav2Vec2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,"
        " intermediate_size=32, conv_dim=(32,) * 7, vocab_size=32))",
        "dict(input_values=torch.rand(2, 16000), labels=torch.randint(1, 30, (2, 8)))",
    ),
    "student's distribution": (
        "t.AutoformerForPrediction(t.AutoformerConfig(prediction_length=8, context_length=16, lags_sequence=[1, 2, 3],"
        " num_time_features=2, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,"
        " decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32))",
        "dict(past_values=torch.rand(2, 19), past_time_features=torch.rand(2, 19, 2),"
        " past_observed_mask=torch.ones(2, 19), future_values=torch.rand(2, 8), future_time_features=torch.rand(2, 8, 2))",
    ),
    "images among words": (
        "t.LlavaForConditionalGeneration(t.LlavaConfig(vision_config=t.CLIPVisionConfig(hidden_size=32,"
        " num_hidden_layers=3, num_attention_heads=2, intermediate_size=64, image_size=28, patch_size=14),"
        f" text_config=t.LlamaConfig({SIZES}), image_token_index=100))",
        "dict(input_ids=torch.tensor([[1] + [100] * 4 + [5] * 10] * 2), pixel_values=torch.rand(2, 3, 28, 28),"
        " labels=torch.tensor([[-100] * 5 + [5] * 10] * 2))",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAINED)
def test_trains(tmp_path: Path, kind: str) -> None:
    model, batch = TRAINED[kind]
    trace = capture_text(tmp_path, TRAIN.format(model=model, batch=batch))
    assert trace.origin.mode == "training"
    assert trace.steps >= 4
    # Weights, gradients and two moments; these tiny models need little more.
    assert 4 * 4 * trace.origin.parameter_count <= peak_bytes(trace) <= 64 * 2**20


GENERATED = {
    "greedily": (f"t.LlamaForCausalLM(t.LlamaConfig({SIZES}))", "do_sample=False"),
    "by drawing": (MIXTRAL, "do_sample=True, top_k=10, top_p=0.9"),
    "in beams": (BART, "num_beams=2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", GENERATED)
def test_generates(tmp_path: Path, way: str) -> None:
    model, options = GENERATED[way]
    trace = capture_text(tmp_path, GENERATE.format(model=model, options=options))
    assert trace.origin.mode == "inference"
    assert peak_bytes(trace) >= 4 * trace.origin.parameter_count
