"""Neural radiance field (Mildenhall et al. 2020): coarse and fine MLPs, hierarchical sampling, volume rendering."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def positional_encoding(x, frequencies):
    out = [x]
    for i in range(frequencies):
        out += [torch.sin(2.0**i * x), torch.cos(2.0**i * x)]
    return torch.cat(out, dim=-1)


class NeRF(nn.Module):
    def __init__(self, depth=8, width=256, x_freqs=10, d_freqs=4):
        super().__init__()
        self.x_freqs, self.d_freqs, self.skip = x_freqs, d_freqs, depth // 2
        x_dim, d_dim = 3 + 6 * x_freqs, 3 + 6 * d_freqs
        self.layers = nn.ModuleList([nn.Linear(x_dim, width)])
        for i in range(1, depth):
            self.layers.append(nn.Linear(width + (x_dim if i == self.skip else 0), width))
        self.sigma = nn.Linear(width, 1)
        self.feature = nn.Linear(width, width)
        self.color = nn.Sequential(nn.Linear(width + d_dim, width // 2), nn.ReLU(), nn.Linear(width // 2, 3))

    def forward(self, points, directions):
        x = positional_encoding(points, self.x_freqs)
        d = positional_encoding(directions, self.d_freqs)
        h = x
        for i, layer in enumerate(self.layers):
            if i == self.skip:
                h = torch.cat([h, x], dim=-1)
            h = F.relu(layer(h))
        rgb = torch.sigmoid(self.color(torch.cat([self.feature(h), d], dim=-1)))
        return rgb, F.softplus(self.sigma(h)).squeeze(-1)


def render(rgb, sigma, depths):
    deltas = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e10)], dim=-1)
    alpha = 1.0 - torch.exp(-sigma.float() * deltas)
    transmittance = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], dim=-1), dim=-1)
    weights = alpha * transmittance[:, :-1]
    return (weights[..., None] * rgb.float()).sum(dim=1), weights


def sample_pdf(bins, weights, count):
    pdf = (weights + 1e-5) / (weights + 1e-5).sum(-1, keepdim=True)
    cdf = torch.cat([torch.zeros_like(pdf[:, :1]), pdf.cumsum(-1)], dim=-1)
    u = torch.rand(bins.shape[0], count, device=bins.device)
    above = torch.searchsorted(cdf, u, right=True).clamp(max=cdf.shape[-1] - 1)
    below = (above - 1).clamp(min=0)
    c0, c1 = cdf.gather(1, below), cdf.gather(1, above)
    b0, b1 = bins.gather(1, below.clamp(max=bins.shape[1] - 1)), bins.gather(1, above.clamp(max=bins.shape[1] - 1))
    width = c1 - c0
    width = torch.where(width < 1e-5, torch.ones_like(width), width)
    return b0 + (u - c0) / width * (b1 - b0)


def render_rays(coarse, fine, origins, directions, n_coarse, n_fine):
    depths = torch.linspace(2.0, 6.0, n_coarse, device=origins.device).expand(len(origins), n_coarse)
    depths = depths + torch.rand_like(depths) * (4.0 / n_coarse)
    view = F.normalize(directions, dim=-1)

    def query(model, at):
        points = origins[:, None] + directions[:, None] * at[..., None]
        return model(points, view[:, None].expand_as(points))

    rgb0, weights = render(*query(coarse, depths), depths)
    middles = 0.5 * (depths[:, 1:] + depths[:, :-1])
    extra = sample_pdf(middles, weights[:, 1:-1].detach(), n_fine).detach()
    depths = torch.sort(torch.cat([depths, extra], dim=-1), dim=-1).values
    rgb1, _ = render(*query(fine, depths), depths)
    return rgb0, rgb1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=1024, help="rays")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--coarse", type=int, default=64)
    parser.add_argument("--fine", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--fp16", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    coarse, fine = NeRF(args.depth, args.width).to(device), NeRF(args.depth, args.width).to(device)
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
    scaler = torch.amp.GradScaler(device.type, enabled=args.fp16)
    pool = torch.randn(65536, 9, device=device)  # origin, direction and color of each ray
    for step in range(args.steps):
        rays = pool[torch.randint(len(pool), (args.batch_size,), device=device)]
        origins, directions, color = rays.split(3, dim=-1)
        with torch.autocast(device.type, dtype=torch.float16, enabled=args.fp16):
            rgb0, rgb1 = render_rays(coarse, fine, origins, directions, args.coarse, args.fine)
            loss = F.mse_loss(rgb0, color.sigmoid()) + F.mse_loss(rgb1, color.sigmoid())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        for group in optimizer.param_groups:
            group["lr"] = 5e-4 * 0.1 ** (step / 250000)
    print(f"psnr {-10 * torch.log10(loss.detach()).item():.2f}")


if __name__ == "__main__":
    main()
