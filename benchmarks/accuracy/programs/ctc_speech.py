"""Speech recognition: convolutions over a spectrogram, bidirectional LSTMs, CTC loss (after Deep Speech 2)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class SpeechModel(nn.Module):
    def __init__(self, mels, hidden, layers, symbols):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20, inplace=True),
        )
        features = 32 * -(-mels // 4)  # halved twice, rounding up
        self.rnn = nn.LSTM(features, hidden, layers, bidirectional=True, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(2 * hidden)
        self.out = nn.Linear(2 * hidden, symbols)

    def forward(self, spectrogram):
        x = self.conv(spectrogram.unsqueeze(1))
        x = x.flatten(1, 2).transpose(1, 2)
        x, _ = self.rnn(x)
        return F.log_softmax(self.out(self.norm(x)), dim=-1)


def spectrogram(wave, window, mels):
    spec = torch.stft(wave, n_fft=512, hop_length=160, window=window, return_complex=True).abs()
    return F.adaptive_avg_pool1d(spec.transpose(1, 2), mels).transpose(1, 2).clamp(min=1e-5).log()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--mels", type=int, default=80)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--gpu-features", action="store_true", help="compute the spectrogram on the GPU")
    args = parser.parse_args()

    device = torch.device("cuda")
    symbols = 29
    model = SpeechModel(args.mels, args.hidden, args.layers, symbols).to(device)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-4, total_steps=args.steps + 1)
    waves = torch.randn(args.batch_size, int(16000 * args.seconds))
    window = torch.hann_window(512)

    for step in range(args.steps):
        if args.gpu_features:
            features = spectrogram(waves.to(device), window.to(device), args.mels)
        else:
            features = spectrogram(waves, window, args.mels).to(device)
        words = int(args.seconds * 12)
        target_lengths = torch.randint(words // 2, words, (args.batch_size,))
        targets = torch.randint(1, symbols, (args.batch_size, words)).to(device)
        optimizer.zero_grad()
        output = model(features).transpose(0, 1)
        input_lengths = torch.full((args.batch_size,), output.size(0), dtype=torch.long)
        loss = criterion(output, targets, input_lengths, target_lengths)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        scheduler.step()
        best = output.argmax(-1).transpose(0, 1)
        decoded = torch.unique_consecutive(best[0])
        print(f"step {step} loss {loss.item():.3f} symbols {(decoded != 0).sum().item()}")
