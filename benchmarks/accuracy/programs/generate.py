"""Greedy or sampled decoding with a key-value cache in half precision, as a small text server would do it."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, cache, start):
        b, t, c = x.shape
        q, k, v = (w(x).view(b, t, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        if isinstance(cache, dict):  # growing cache
            if "k" in cache:
                k, v = torch.cat([cache["k"], k], dim=2), torch.cat([cache["v"], v], dim=2)
            cache["k"], cache["v"] = k, v
        else:  # preallocated cache
            cache[0][:, :, start : start + t] = k
            cache[1][:, :, start : start + t] = v
            k, v = cache[0][:, :, : start + t], cache[1][:, :, : start + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        return self.wo(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, cache, start):
        x = x + self.attention(self.norm1(x), cache, start)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim, heads, layers, longest):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocab, dim), nn.Embedding(longest, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids, caches, start):
        x = self.embed(ids) + self.position(torch.arange(start, start + ids.shape[1], device=ids.device))
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, start)
        return self.head(self.norm(x[:, -1:]))


@torch.inference_mode()
def generate(model, prompt, new_tokens, top_k, static, heads):
    b, t = prompt.shape
    dim = model.embed.embedding_dim
    if static:
        shape = (2, b, heads, t + new_tokens, dim // heads)
        caches = [torch.zeros(shape, dtype=model.head.weight.dtype, device=prompt.device) for _ in model.layers]
    else:
        caches = [{} for _ in model.layers]
    out, ids, start = prompt, prompt, 0
    for _ in range(new_tokens):
        logits = model(ids, caches, start)[:, -1].float()
        start += ids.shape[1]
        if top_k:
            values, indices = torch.topk(logits, top_k)
            ids = indices.gather(1, torch.multinomial(values.softmax(-1), 1))
        else:
            ids = logits.argmax(-1, keepdim=True)
        out = torch.cat([out, ids], dim=1)
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="batches of prompts")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--static-cache", action="store_true")
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], default="float16")
    args = parser.parse_args()

    torch.set_default_device("cuda")
    torch.set_default_dtype(getattr(torch, args.dtype))
    model = LanguageModel(args.vocab, args.dim, args.heads, args.layers, args.prompt + args.new_tokens).eval()
    torch.set_default_dtype(torch.float32)
    for batch in range(args.steps):
        prompt = torch.randint(args.vocab, (args.batch_size, args.prompt))
        tokens = generate(model, prompt, args.new_tokens, args.top_k, args.static_cache, args.heads)
        print(batch, tokens[0, -5:].tolist())
