"""Bottleneck adapters (Houlsby et al. 2019) on a frozen bfloat16 encoder; only adapters, norms and the head are trained."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Adapter(nn.Module):
    def __init__(self, dim, bottleneck):
        super().__init__()
        self.down = nn.Linear(dim, bottleneck)
        self.up = nn.Linear(bottleneck, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(F.gelu(self.down(x)))


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim, heads, bottleneck):
        super().__init__()
        self.attention = SelfAttention(dim, heads)
        self.attention_adapter = Adapter(dim, bottleneck)
        self.norm1 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.mlp_adapter = Adapter(dim, bottleneck)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention_adapter(self.attention(x, mask)))
        return self.norm2(x + self.mlp_adapter(self.mlp(x)))


class Encoder(nn.Module):
    def __init__(self, vocab, length, dim, layers, heads, bottleneck, classes):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, bottleneck) for _ in range(layers))
        self.head = nn.Linear(dim, classes)

    def forward(self, ids, attention_mask):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        mask = attention_mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, 0])


def freeze_base(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "adapter" in name or "norm" in name or name.startswith("head")
    trainable = [p for p in model.parameters() if p.requires_grad]
    share = sum(p.numel() for p in trainable) / sum(p.numel() for p in model.parameters())
    print(f"training {100 * share:.2f} % of the parameters")
    return trainable


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=50265)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--bottleneck", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Encoder(args.vocab, args.length, args.dim, args.layers, args.heads, args.bottleneck, 3)
    model = model.to(device=device, dtype=torch.bfloat16)
    trainable = freeze_base(model)
    optimizer = torch.optim.AdamW(trainable, lr=1e-4)
    ids = torch.randint(5, args.vocab, (args.batch_size, args.length))
    mask = torch.ones_like(ids)
    mask[: args.batch_size // 2, args.length * 3 // 4 :] = 0
    labels = torch.randint(0, 3, (args.batch_size,))
    for step in range(args.steps):
        for _ in range(args.accumulate):
            logits = model(ids.to(device), mask.to(device))
            loss = F.cross_entropy(logits.float(), labels.to(device))
            (loss / args.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
