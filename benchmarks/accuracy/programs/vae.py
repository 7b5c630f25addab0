"""Variational autoencoder (Kingma & Welling 2013), convolutional or fully connected."""

from __future__ import annotations

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


class DenseVAE(nn.Module):
    def __init__(self, pixels, hidden, latent):
        super().__init__()
        self.fc1 = nn.Linear(pixels, hidden)
        self.mu, self.logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.fc3, self.fc4 = nn.Linear(latent, hidden), nn.Linear(hidden, pixels)

    def encode(self, x):
        h = F.relu(self.fc1(x.flatten(1)))
        return self.mu(h), self.logvar(h)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))


class ConvVAE(nn.Module):
    def __init__(self, channels, size, width, latent):
        super().__init__()
        self.size, self.width = size, width
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, width, 4, 2, 1), nn.ELU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ELU(),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.ELU(), nn.Flatten(),
        )  # fmt: skip
        flat = 4 * width * (size // 8) ** 2
        self.mu, self.logvar, self.expand = nn.Linear(flat, latent), nn.Linear(flat, latent), nn.Linear(latent, flat)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (4 * width, size // 8, size // 8)),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.ELU(), nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.ELU(), nn.ConvTranspose2d(width, channels, 4, 2, 1), nn.Sigmoid(), nn.Flatten(),
        )  # fmt: skip

    def encode(self, x):
        h = self.encoder(x)
        return self.mu(h), self.logvar(h)

    def decode(self, z):
        return self.decoder(self.expand(z))


def elbo(reconstruction, x, mu, logvar):
    bce = F.binary_cross_entropy(reconstruction, x.flatten(1), reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["dense", "conv"], default="conv")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--latent", type=int, default=256)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()

    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    if args.kind == "dense":
        model = DenseVAE(args.channels * args.size**2, args.width * 16, args.latent).to(device)
    else:
        model = ConvVAE(args.channels, args.size, args.width, args.latent).to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    pictures = torch.rand(args.channels, args.size, args.size).expand(args.batch_size * args.steps, -1, -1, -1)
    loader = torch.utils.data.DataLoader(pictures, batch_size=args.batch_size, **kwargs)

    model.train()
    train_loss = 0
    for data in loader:
        data = data.to(device)
        optimizer.zero_grad()
        mu, logvar = model.encode(data)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        recon = model.decode(z)
        loss = elbo(recon, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    print(f"====> Average loss: {train_loss / (args.steps * args.batch_size):.4f}")
    with torch.no_grad():
        sample = model.decode(torch.randn(64, args.latent).to(device)).cpu()
        print("sample", sample.view(64, args.channels, args.size, args.size).shape)


if __name__ == "__main__":
    main()
