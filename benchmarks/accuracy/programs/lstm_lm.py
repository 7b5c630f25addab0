# Word-level LSTM language model with truncated backpropagation through time and plain SGD,
# after the recipe of Zaremba et al. 2014.
import argparse
import math
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description="LSTM language model")
parser.add_argument("--batch-size", type=int, default=20)
parser.add_argument("--bptt", type=int, default=35)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--vocab", type=int, default=10000)
parser.add_argument("--emsize", type=int, default=650)
parser.add_argument("--nhid", type=int, default=650)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--cell", choices=["LSTM", "GRU"], default="LSTM")
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--tied", action="store_true")
args = parser.parse_args()

torch.manual_seed(1111)
device = torch.device("cuda")


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(args.dropout)
        self.encoder = nn.Embedding(args.vocab, args.emsize)
        self.rnn = getattr(nn, args.cell)(args.emsize, args.nhid, args.nlayers, dropout=args.dropout)
        self.decoder = nn.Linear(args.nhid, args.vocab)
        if args.tied:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, tokens, hidden):
        emb = self.drop(self.encoder(tokens))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return torch.log_softmax(decoded.view(-1, args.vocab), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        state = weight.new_zeros(args.nlayers, bsz, args.nhid)
        return (state, state.clone()) if args.cell == "LSTM" else state


def repackage(h):
    """Cut the graph between two windows of text."""
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


# The whole corpus stays on the GPU, one column per stream of text.
corpus = torch.randint(args.vocab, (args.steps * args.bptt + 1, args.batch_size)).to(device)
model = RNNModel().to(device)
criterion = nn.NLLLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=args.momentum)

hidden = model.init_hidden(args.batch_size)
total_loss = 0.0
start = time.time()
for batch in range(args.steps):
    i = batch * args.bptt
    source, target = corpus[i : i + args.bptt], corpus[i + 1 : i + 1 + args.bptt].reshape(-1)
    model.zero_grad()
    hidden = repackage(hidden)
    output, hidden = model(source, hidden)
    loss = criterion(output, target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    total_loss += loss.item()
    mean = total_loss / (batch + 1)
    print(
        f"| {batch:3d} batches | ms/batch {(time.time() - start) * 1000 / (batch + 1):5.1f} | loss {mean:5.2f} | "
        f"ppl {math.exp(min(mean, 50)):8.2f}"
    )
