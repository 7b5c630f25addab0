"""Trains or scores a decoder of transformers with random weights: OPT, Mistral or Qwen2."""

import argparse

import torch
from torch.utils.data import DataLoader
from transformers import AutoConfig, AutoModelForCausalLM, get_cosine_schedule_with_warmup


def make_config(args):
    common = {
        "vocab_size": args.vocab,
        "hidden_size": args.hidden,
        "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads,
        "max_position_embeddings": 4096,
    }
    if args.family == "opt":
        return AutoConfig.for_model("opt", ffn_dim=4 * args.hidden, word_embed_proj_dim=args.hidden, **common)
    config = AutoConfig.for_model(
        args.family, num_key_value_heads=args.kv_heads, intermediate_size=args.intermediate or 3 * args.hidden, **common
    )
    if args.family == "mistral":
        config.sliding_window = args.window
    return config


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=["opt", "mistral", "qwen2"], default="opt")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--intermediate", type=int, default=0)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--bf16", action="store_true", help="weights in bfloat16")
    parser.add_argument("--score", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = AutoModelForCausalLM.from_config(make_config(args), dtype=torch.bfloat16 if args.bf16 else torch.float32)
    model.to(device)
    print(f"{model.num_parameters() / 1e6:.0f}M parameters")
    documents = [{"input_ids": torch.randint(args.vocab, (args.length,))} for _ in range(2 * args.batch_size)]
    loader = DataLoader(documents, batch_size=args.batch_size)
    batches = (batch for _ in range(args.steps) for batch in loader)

    if args.score:
        model.eval()
        for _, batch in zip(range(args.steps), batches, strict=False):
            ids = batch["input_ids"].to(device)
            with torch.inference_mode():
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            print(f"perplexity {loss.exp().item():.1f}")
        return

    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 10, 1000)
    for step, batch in zip(range(args.steps), batches, strict=False):
        ids = batch["input_ids"].to(device)
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
