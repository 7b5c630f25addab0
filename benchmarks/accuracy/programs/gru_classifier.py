"""Text classification with a bidirectional GRU or LSTM over packed sequences of unequal length."""

import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader


class Classifier(nn.Module):
    def __init__(self, vocab, emb, hidden, layers, classes, cell):
        super().__init__()
        self.embedding = nn.Embedding(vocab, emb, padding_idx=0)
        rnn = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
        self.rnn = rnn(emb, hidden, layers, batch_first=True, bidirectional=True, dropout=0.3 if layers > 1 else 0)
        self.attention = nn.Linear(2 * hidden, 1)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, text, lengths):
        packed = pack_padded_sequence(self.embedding(text), lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.rnn(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        scores = self.attention(states).squeeze(-1)
        scores = scores.masked_fill(text[:, : scores.shape[1]] == 0, -1e4)
        return self.fc((scores.softmax(-1).unsqueeze(-1) * states).sum(1))


def collate(examples):
    lengths = torch.tensor([len(e[0]) for e in examples])
    text = nn.utils.rnn.pad_sequence([e[0] for e in examples], batch_first=True)
    return text, lengths, torch.tensor([e[1] for e in examples])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--max-length", type=int, default=200)
    parser.add_argument("--vocab", type=int, default=25000)
    parser.add_argument("--emb", type=int, default=300)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--cell", choices=["gru", "lstm"], default="gru")
    args = parser.parse_args()

    random.seed(0)
    words = torch.randint(1, args.vocab, (args.max_length,))
    examples = [
        (words[: random.randint(args.max_length // 4, args.max_length)], random.randrange(4))
        for _ in range(args.batch_size * args.steps)
    ]
    loader = DataLoader(examples, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    device = torch.device("cuda")
    model = Classifier(args.vocab, args.emb, args.hidden, args.layers, 4, args.cell).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(1):
        model.train()
        epoch_loss = epoch_accuracy = 0.0
        for text, lengths, labels in loader:
            text, labels = text.to(device), labels.to(device)
            optimizer.zero_grad()
            predictions = model(text, lengths)
            loss = criterion(predictions, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            epoch_loss += loss.item()
            epoch_accuracy += (predictions.argmax(1) == labels).float().mean().item()
        print(f"Epoch {epoch}: loss {epoch_loss / len(loader):.3f} accuracy {epoch_accuracy / len(loader):.3f}")
        model.eval()
        with torch.no_grad():
            text, lengths, labels = next(iter(loader))
            print("validation", criterion(model(text.to(device), lengths), labels.to(device)).item())
