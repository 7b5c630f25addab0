"""DCGAN (Radford et al. 2015): generator and discriminator with an Adam each."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Faces(Dataset):
    def __init__(self, count, size, channels):
        self.count = count
        self.pixels = torch.rand(channels, size, size) * 2 - 1

    def __len__(self):
        return self.count

    def __getitem__(self, _):
        return self.pixels


def init_weights(m):
    name = m.__class__.__name__
    if "Conv" in name:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


def generator(nz, ngf, nc, doublings):
    layers = []
    width = ngf * 2 ** (doublings - 1)
    layers += [nn.ConvTranspose2d(nz, width, 4, 1, 0, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)]
    for _ in range(doublings - 1):
        layers += [
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(True),
        ]
        width //= 2
    layers += [nn.ConvTranspose2d(width, nc, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def discriminator(ndf, nc, halvings):
    layers = [nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    width = ndf
    for _ in range(halvings - 1):
        layers += [
            nn.Conv2d(width, width * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.LeakyReLU(0.2, inplace=True),
        ]
        width *= 2
    layers += [nn.Conv2d(width, 1, 4, 1, 0, bias=False), nn.Flatten(0)]
    return nn.Sequential(*layers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--nz", type=int, default=100)
    parser.add_argument("--ngf", type=int, default=64)
    parser.add_argument("--ndf", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.0002)
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    opt = parser.parse_args()

    torch.backends.cudnn.benchmark = opt.benchmark
    device = torch.device("cuda:0")
    doublings = opt.image_size.bit_length() - 3  # from 4 x 4 up to the image
    net_g = generator(opt.nz, opt.ngf, 3, doublings).to(device).apply(init_weights)
    net_d = discriminator(opt.ndf, 3, doublings).to(device).apply(init_weights)
    criterion = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(64, opt.nz, 1, 1, device=device)
    opt_d = torch.optim.Adam(net_d.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    opt_g = torch.optim.Adam(net_g.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    loader = DataLoader(
        Faces(opt.batch_size * opt.steps, opt.image_size, 3), batch_size=opt.batch_size, num_workers=opt.workers
    )

    for i, real in enumerate(loader):
        # discriminator: real images, then generated ones
        net_d.zero_grad()
        real = real.to(device)
        label = torch.full((real.size(0),), 1.0, device=device)
        err_real = criterion(net_d(real), label)
        err_real.backward()
        noise = torch.randn(real.size(0), opt.nz, 1, 1, device=device)
        fake = net_g(noise)
        label.fill_(0.0)
        err_fake = criterion(net_d(fake.detach()), label)
        err_fake.backward()
        opt_d.step()

        # generator
        net_g.zero_grad()
        label.fill_(1.0)
        output = net_d(fake)
        err_g = criterion(output, label)
        err_g.backward()
        opt_g.step()
        print(
            f"[{i}/{len(loader)}] D {(err_real + err_fake).item():.4f} G {err_g.item():.4f} "
            f"D(G(z)) {output.sigmoid().mean().item():.4f}"
        )

    with torch.no_grad():
        samples = net_g(fixed_noise).detach().cpu()
    print("samples", tuple(samples.shape))
