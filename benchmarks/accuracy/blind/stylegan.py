"""A small GAN with modulated convolutions (StyleGAN2, Karras et al. 2020): R1 penalty, non-saturating loss, averaged weights."""

import argparse
import copy
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


class EqualLinear(nn.Module):
    def __init__(self, cin, cout, bias=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin))
        self.bias = nn.Parameter(torch.full((cout,), bias))
        self.scale = 1 / math.sqrt(cin)

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias)


class ModulatedConv(nn.Module):
    def __init__(self, cin, cout, kernel, style, demodulate=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, cout, cin, kernel, kernel))
        self.scale = 1 / math.sqrt(cin * kernel**2)
        self.modulation = EqualLinear(style, cin, bias=1.0)
        self.demodulate, self.pad = demodulate, kernel // 2

    def forward(self, x, w):
        b, c, h, width = x.shape
        weight = self.scale * self.weight * self.modulation(w).view(b, 1, c, 1, 1)
        if self.demodulate:
            weight = weight * torch.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        weight = weight.view(-1, *weight.shape[2:])
        out = F.conv2d(x.reshape(1, b * c, h, width), weight, padding=self.pad, groups=b)
        return out.view(b, -1, h, width)


class StyledLayer(nn.Module):
    def __init__(self, cin, cout, style):
        super().__init__()
        self.conv = ModulatedConv(cin, cout, 3, style)
        self.strength = nn.Parameter(torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(1, cout, 1, 1))

    def forward(self, x, w):
        x = self.conv(x, w)
        x = x + self.strength * torch.randn(x.size(0), 1, *x.shape[2:], device=x.device)
        return F.leaky_relu(x + self.bias, 0.2)


class Generator(nn.Module):
    def __init__(self, size, style, channels):
        super().__init__()
        self.mapping = nn.Sequential(*[m for _ in range(4) for m in (EqualLinear(style, style), nn.LeakyReLU(0.2))])
        self.constant = nn.Parameter(torch.randn(1, channels, 4, 4))
        self.layers, self.to_rgb = nn.ModuleList(), nn.ModuleList()
        cin = channels
        for i in range(int(math.log2(size)) - 1):
            cout = max(channels >> max(i - 2, 0), 16)
            self.layers.append(nn.ModuleList([StyledLayer(cin, cout, style), StyledLayer(cout, cout, style)]))
            self.to_rgb.append(ModulatedConv(cout, 3, 1, style, demodulate=False))
            cin = cout

    def forward(self, z):
        w = self.mapping(z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8))
        x, image = self.constant.expand(z.size(0), -1, -1, -1), None
        for i, ((first, second), rgb) in enumerate(zip(self.layers, self.to_rgb, strict=True)):
            if i:
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
                image = F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
            x = second(first(x, w), w)
            image = rgb(x, w) if image is None else image + rgb(x, w)
        return image


class Discriminator(nn.Module):
    def __init__(self, size, channels):
        super().__init__()
        levels = int(math.log2(size)) - 2
        widths = [max(channels >> max(i - 2, 0), 16) for i in range(levels, -1, -1)]
        layers = [nn.Conv2d(3, widths[0], 1), nn.LeakyReLU(0.2)]
        for cin, cout in pairwise(widths):
            layers += [nn.Conv2d(cin, cin, 3, 1, 1), nn.LeakyReLU(0.2)]
            layers += [nn.Conv2d(cin, cout, 3, 1, 1), nn.LeakyReLU(0.2), nn.AvgPool2d(2)]
        layers += [nn.Flatten(), nn.Linear(widths[-1] * 16, channels), nn.LeakyReLU(0.2), nn.Linear(channels, 1)]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--style", type=int, default=512)
    p.add_argument("--channels", type=int, default=256)
    p.add_argument("--r1", type=float, default=10.0)
    a = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    g, d = Generator(a.size, a.style, a.channels).to(device), Discriminator(a.size, a.channels).to(device)
    g_ema = copy.deepcopy(g).eval().requires_grad_(False)
    g_optim = torch.optim.Adam(g.parameters(), lr=0.002, betas=(0.0, 0.99))
    d_optim = torch.optim.Adam(d.parameters(), lr=0.002, betas=(0.0, 0.99))
    for i in range(a.steps):
        real = torch.rand(a.batch_size, 3, a.size, a.size, device=device) * 2 - 1
        with torch.no_grad():
            fake = g(torch.randn(a.batch_size, a.style, device=device))
        real.requires_grad_(a.r1 > 0)
        real_pred = d(real)
        d_loss = F.softplus(-real_pred).mean() + F.softplus(d(fake)).mean()
        if a.r1 > 0:
            (grad,) = torch.autograd.grad(real_pred.sum(), real, create_graph=True)
            d_loss = d_loss + a.r1 / 2 * grad.pow(2).flatten(1).sum(1).mean()
        d_optim.zero_grad()
        d_loss.backward()
        d_optim.step()
        d.requires_grad_(False)
        g_loss = F.softplus(-d(g(torch.randn(a.batch_size, a.style, device=device)))).mean()
        g_optim.zero_grad()
        g_loss.backward()
        g_optim.step()
        d.requires_grad_(True)
        with torch.no_grad():
            for averaged, current in zip(g_ema.parameters(), g.parameters(), strict=True):
                averaged.lerp_(current, 0.001)
        print(f"{i}: d {d_loss.item():.3f} g {g_loss.item():.3f}")
