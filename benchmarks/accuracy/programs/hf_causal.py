"""Fine-tunes a causal language model of transformers built from its configuration: GPT-2 or Llama."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup


def build(args):
    if args.family == "gpt2":
        config = GPT2Config(
            n_embd=args.hidden, n_layer=args.layers, n_head=args.heads, n_positions=args.length, vocab_size=args.vocab
        )
        config._attn_implementation = args.attention
        return GPT2LMHeadModel(config)
    config = LlamaConfig(
        hidden_size=args.hidden,
        intermediate_size=int(args.hidden * 8 / 3) // 64 * 64,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=max(1, args.heads // 4),
        max_position_embeddings=args.length,
        vocab_size=args.vocab,
    )
    config._attn_implementation = args.attention
    return LlamaForCausalLM(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=("gpt2", "llama"), default="gpt2")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--bf16-weights", action="store_true", help="keep the parameters themselves in bfloat16")
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:  # initialise on the GPU: much faster than on the host for large models
        model = build(args)
    if args.bf16_weights:
        model = model.to(torch.bfloat16)
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
        model.config.use_cache = False
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, 100)

    for step in range(args.steps):
        ids = torch.randint(0, args.vocab, (args.batch_size, args.length)).to(device)
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.autocast):
            outputs = model(**batch)
        loss = outputs.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print({"step": step, "loss": round(loss.detach().item(), 4)})


if __name__ == "__main__":
    main()
