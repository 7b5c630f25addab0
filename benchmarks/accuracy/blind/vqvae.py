"""Vector-quantised autoencoder for images (van den Oord et al. 2017); the codebook follows exponential averages."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizerEMA(nn.Module):
    def __init__(self, codes, dim, decay=0.99, commitment=0.25, epsilon=1e-5):
        super().__init__()
        self.codes, self.decay, self.commitment, self.epsilon = codes, decay, commitment, epsilon
        embed = torch.randn(codes, dim)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.ones(codes))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).float()
        flat = z.reshape(-1, z.shape[-1])
        distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embed.t() + self.embed.pow(2).sum(1)
        indices = distance.argmin(dim=1)
        one_hot = F.one_hot(indices, self.codes).type(flat.dtype)
        quantized = F.embedding(indices, self.embed).view_as(z)
        if self.training:
            with torch.no_grad():
                self.cluster_size.mul_(self.decay).add_(one_hot.sum(0), alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(one_hot.t() @ flat, alpha=1 - self.decay)
                n = self.cluster_size.sum()
                size = (self.cluster_size + self.epsilon) / (n + self.codes * self.epsilon) * n
                self.embed.copy_(self.embed_avg / size.unsqueeze(1))
        loss = self.commitment * F.mse_loss(z, quantized.detach())
        quantized = z + (quantized - z).detach()
        usage = one_hot.mean(0)
        perplexity = torch.exp(-torch.sum(usage * torch.log(usage + 1e-10)))
        return quantized.permute(0, 3, 1, 2), loss, perplexity


class ResidualStack(nn.Module):
    def __init__(self, channels, hidden, count):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(), nn.Conv2d(channels, hidden, 3, padding=1, bias=False),
                nn.ReLU(), nn.Conv2d(hidden, channels, 1, bias=False),
            )
            for _ in range(count)
        )  # fmt: skip

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return F.relu(x)


class VQVAE(nn.Module):
    def __init__(self, hidden, residual, blocks, codes, dim):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, hidden // 2, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(hidden // 2, hidden, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(hidden, hidden, 3, 1, 1), ResidualStack(hidden, residual, blocks),
            nn.Conv2d(hidden, dim, 1),
        )  # fmt: skip
        self.quantizer = VectorQuantizerEMA(codes, dim)
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, hidden, 3, 1, 1), ResidualStack(hidden, residual, blocks),
            nn.ConvTranspose2d(hidden, hidden // 2, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(hidden // 2, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x):
        quantized, vq_loss, perplexity = self.quantizer(self.encoder(x))
        return self.decoder(quantized), vq_loss, perplexity


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--size", type=int, default=32)
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--residual", type=int, default=32)
parser.add_argument("--blocks", type=int, default=2)
parser.add_argument("--codes", type=int, default=512)
parser.add_argument("--dim", type=int, default=64)
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = VQVAE(args.hidden, args.residual, args.blocks, args.codes, args.dim).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, amsgrad=True)
data_variance = 0.06
model.train()
for i in range(args.steps):
    data = torch.rand(args.batch_size, 3, args.size, args.size, device=device) - 0.5
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bf16):
        recon, vq_loss, perplexity = model(data)
        recon_error = F.mse_loss(recon, data) / data_variance
        loss = recon_error + vq_loss
    loss.backward()
    optimizer.step()
    if (i + 1) % 100 == 0:
        print(f"{i + 1} iterations, error {recon_error.item():.3f}, perplexity {perplexity.item():.3f}")
