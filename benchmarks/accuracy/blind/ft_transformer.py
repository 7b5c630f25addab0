"""Tabular classification with a feature-tokenizer transformer (Gorishniy et al. 2021), ReGLU blocks, SGD or AdamW."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Tokenizer(nn.Module):
    def __init__(self, d_numerical, categories, d_token):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_numerical + 1, d_token))
        self.bias = nn.Parameter(torch.empty(d_numerical + len(categories), d_token))
        offsets = torch.tensor([0, *categories[:-1]]).cumsum(0)
        self.register_buffer("category_offsets", offsets)
        self.category_embeddings = nn.Embedding(sum(categories), d_token)
        for p in (self.weight, self.bias, self.category_embeddings.weight):
            nn.init.kaiming_uniform_(p, a=math.sqrt(5))

    def forward(self, x_num, x_cat):
        x_num = torch.cat([torch.ones(len(x_num), 1, device=x_num.device), x_num], dim=1)  # [CLS] comes first
        x = self.weight[None] * x_num[:, :, None]
        x = torch.cat([x, self.category_embeddings(x_cat + self.category_offsets[None])], dim=1)
        bias = torch.cat([torch.zeros(1, self.bias.shape[1], device=x.device), self.bias])
        return x + bias[None]


class Block(nn.Module):
    def __init__(self, d, n_heads, d_hidden, dropout, first):
        super().__init__()
        self.norm0 = nn.Identity() if first else nn.LayerNorm(d)
        self.attention = nn.MultiheadAttention(d, n_heads, dropout=dropout, batch_first=True)
        self.norm1 = nn.LayerNorm(d)
        self.linear0, self.linear1 = nn.Linear(d, 2 * d_hidden), nn.Linear(d_hidden, d)
        self.dropout = dropout

    def forward(self, x):
        h = self.norm0(x)
        h, _ = self.attention(h, h, h)  # the averaged weights are computed too and thrown away
        x = x + F.dropout(h, self.dropout, self.training)
        a, b = self.linear0(self.norm1(x)).chunk(2, dim=-1)
        return x + self.linear1(F.dropout(a * F.relu(b), self.dropout, self.training))


class FTTransformer(nn.Module):
    def __init__(self, d_numerical, categories, d_token, n_layers, n_heads, dropout, d_out):
        super().__init__()
        self.tokenizer = Tokenizer(d_numerical, categories, d_token)
        d_hidden = int(d_token * 4 / 3)
        self.blocks = nn.ModuleList(Block(d_token, n_heads, d_hidden, dropout, i == 0) for i in range(n_layers))
        self.head = nn.Sequential(nn.LayerNorm(d_token), nn.ReLU(), nn.Linear(d_token, d_out))

    def forward(self, x_num, x_cat):
        x = self.tokenizer(x_num, x_cat)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", "--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--n_num", type=int, default=28)
    parser.add_argument("--n_cat", type=int, default=8)
    parser.add_argument("--d_token", type=int, default=192)
    parser.add_argument("--n_layers", type=int, default=3)
    parser.add_argument("--n_heads", type=int, default=8)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # the whole table fits on the GPU, batches are picked there
    X_num = torch.randn(args.rows, args.n_num, device=device)
    X_cat = torch.randint(0, 10, (args.rows, args.n_cat), device=device)
    Y = (X_num[:, 0] + X_num[:, 1] > 0).float()
    model = FTTransformer(args.n_num, [10] * args.n_cat, args.d_token, args.n_layers, args.n_heads, 0.1, 1).to(device)
    no_decay = [p for n, p in model.named_parameters() if "tokenizer" in n or "norm" in n or n.endswith(".bias")]
    skip = {id(p) for p in no_decay}
    decay = [p for p in model.parameters() if id(p) not in skip]
    optimizer = torch.optim.AdamW(
        [{"params": decay}, {"params": no_decay, "weight_decay": 0.0}], 1e-4, weight_decay=1e-5
    )
    step, losses = 0, []
    while step < args.steps:
        for index in torch.randperm(args.rows, device=device).split(args.batch_size):
            if step == args.steps or len(index) < args.batch_size:
                break
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
                logits = model(X_num[index], X_cat[index]).squeeze(1)
                loss = F.binary_cross_entropy_with_logits(logits, Y[index])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            step += 1
    print("mean loss", torch.stack(losses).mean().item())


if __name__ == "__main__":
    main()
