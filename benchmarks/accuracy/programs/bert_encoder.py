"""Masked language modelling with nn.TransformerEncoder and padded sentences."""

import argparse

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, MASK = 0, 1


class Sentences(Dataset):
    def __init__(self, n, max_len, vocab):
        g = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(max_len // 2, max_len + 1, (n,), generator=g).tolist()
        self.tokens = torch.randint(2, vocab, (max_len,), generator=g)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return self.tokens[: self.lengths[i]].clone()


class Collate:
    def __init__(self, max_len):
        self.max_len = max_len

    def __call__(self, sentences):
        sentences[0] = nn.functional.pad(sentences[0], (0, self.max_len - len(sentences[0])), value=PAD)
        ids = pad_sequence(sentences, batch_first=True, padding_value=PAD)
        labels = ids.clone()
        chosen = (torch.rand(ids.shape) < 0.15) & (ids != PAD)
        labels[~chosen] = -100
        ids[chosen] = MASK
        return ids, labels


class MaskedLM(nn.Module):
    def __init__(self, vocab, dim, heads, layers, ff, max_len, dropout):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, ff, dropout, activation="gelu", batch_first=True, norm_first=False
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.decoder = nn.Linear(dim, vocab)

    def forward(self, ids):
        positions = torch.arange(ids.size(1), device=ids.device).unsqueeze(0)
        x = self.norm(self.embed(ids) + self.pos(positions))
        x = self.encoder(x, src_key_padding_mask=ids.eq(PAD))
        return self.decoder(x)


ap = argparse.ArgumentParser()
ap.add_argument("--batch-size", type=int, default=16)
ap.add_argument("--steps", type=int, default=5)
ap.add_argument("--max-len", type=int, default=128)
ap.add_argument("--vocab", type=int, default=30000)
ap.add_argument("--dim", type=int, default=512)
ap.add_argument("--heads", type=int, default=8)
ap.add_argument("--layers", type=int, default=6)
ap.add_argument("--ff", type=int, default=2048)
ap.add_argument("--dropout", type=float, default=0.1)
ap.add_argument("--fp16", action="store_true")
ap.add_argument("--keep-grads", action="store_true", help="fill gradients with zeros instead of dropping them")
ap.add_argument("--workers", type=int, default=0)
args = ap.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(
    Sentences(args.batch_size * args.steps, args.max_len, args.vocab),
    batch_size=args.batch_size,
    collate_fn=Collate(args.max_len),
    num_workers=args.workers,
)
model = MaskedLM(args.vocab, args.dim, args.heads, args.layers, args.ff, args.max_len, args.dropout).to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
loss_fn = nn.CrossEntropyLoss()
scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)

model.train()
total = 0.0
for i, (ids, labels) in enumerate(loader, 1):
    opt.zero_grad(set_to_none=not args.keep_grads)
    ids = ids.to(device)
    labels = labels.to(device)
    with torch.autocast(device, dtype=torch.float16, enabled=args.fp16):
        logits = model(ids)
        loss = loss_fn(logits.view(-1, args.vocab), labels.view(-1))
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(opt)
    scaler.update()
    total += loss.item()
    print("batch", i, "loss", total / i)
