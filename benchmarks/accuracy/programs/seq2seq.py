"""Translation with nn.Transformer: padding masks on both sides, causal mask, Noam schedule, label smoothing."""

import argparse
import math

import torch
from torch import nn

PAD = 0


class Positional(nn.Module):
    def __init__(self, dim, longest, dropout):
        super().__init__()
        position = torch.arange(longest).unsqueeze(1)
        rate = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        table = torch.zeros(longest, dim)
        table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
        self.register_buffer("table", table)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(x + self.table[: x.size(1)])


class Translator(nn.Module):
    def __init__(self, vocab, dim, heads, layers, ff, longest, dropout=0.1):
        super().__init__()
        self.dim = dim
        self.source, self.target = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.positional = Positional(dim, longest, dropout)
        self.transformer = nn.Transformer(dim, heads, layers, layers, ff, dropout, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, src, tgt):
        causal = self.transformer.generate_square_subsequent_mask(tgt.size(1), device=tgt.device)
        src_pad, tgt_pad = src == PAD, tgt == PAD
        decoded = self.transformer(
            self.positional(self.source(src) * math.sqrt(self.dim)),
            self.positional(self.target(tgt) * math.sqrt(self.dim)),
            tgt_mask=causal,
            src_key_padding_mask=src_pad,
            tgt_key_padding_mask=tgt_pad.float().masked_fill(tgt_pad, float("-inf")),
            memory_key_padding_mask=src_pad,
        )
        return self.out(decoded)


def sentences(args, generator):
    ids = torch.randint(1, args.vocab, (args.batch_size, args.length), generator=generator)
    lengths = torch.randint(args.length // 2, args.length + 1, (args.batch_size, 1), generator=generator)
    return ids.masked_fill(torch.arange(args.length) >= lengths, PAD)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=16000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--ff", type=int, default=2048)
    parser.add_argument("--update-freq", type=int, default=1)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Translator(args.vocab, args.dim, args.heads, args.layers, args.ff, args.length).cuda()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: args.dim**-0.5 * min((s + 1) ** -0.5, (s + 1) * 4000**-1.5)
    )
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    for step in range(args.steps):
        optimizer.zero_grad()
        for _ in range(args.update_freq):
            src, tgt = sentences(args, generator).cuda(), sentences(args, generator).cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.amp):
                logits = model(src, tgt[:, :-1])
                loss = criterion(logits.reshape(-1, args.vocab), tgt[:, 1:].reshape(-1))
            (loss / args.update_freq).backward()
        optimizer.step()
        noam.step()
        print(f"step {step} loss {loss.item():.3f} ppl {math.exp(min(20, loss.item())):.1f}")


if __name__ == "__main__":
    main()
