"""Diagonal state-space layers applied as long convolutions through the FFT (S4D, Gu et al. 2022), sequence classification."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class S4DKernel(nn.Module):
    def __init__(self, d_model, n=64, dt_min=0.001, dt_max=0.1):
        super().__init__()
        log_dt = torch.rand(d_model) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min)
        self.log_dt = nn.Parameter(log_dt)
        self.C = nn.Parameter(torch.view_as_real(torch.randn(d_model, n // 2, dtype=torch.cfloat)))
        self.log_A_real = nn.Parameter(torch.log(0.5 * torch.ones(d_model, n // 2)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(n // 2).float().repeat(d_model, 1))

    def forward(self, length):
        dt = torch.exp(self.log_dt)
        C = torch.view_as_complex(self.C)
        A = -torch.exp(self.log_A_real) + 1j * self.A_imag
        dtA = A * dt.unsqueeze(-1)
        K = dtA.unsqueeze(-1) * torch.arange(length, device=A.device)
        C = C * (torch.exp(dtA) - 1.0) / A
        return 2 * torch.einsum("hn,hnl->hl", C, torch.exp(K)).real


class S4D(nn.Module):
    def __init__(self, d_model, d_state, dropout):
        super().__init__()
        self.D = nn.Parameter(torch.randn(d_model))
        self.kernel = S4DKernel(d_model, n=d_state)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout1d(dropout) if dropout > 0.0 else nn.Identity()
        self.output_linear = nn.Sequential(nn.Conv1d(d_model, 2 * d_model, kernel_size=1), nn.GLU(dim=-2))

    def forward(self, u):
        L = u.size(-1)
        k = self.kernel(L)
        k_f = torch.fft.rfft(k, n=2 * L)
        u_f = torch.fft.rfft(u.float(), n=2 * L)
        y = torch.fft.irfft(u_f * k_f, n=2 * L)[..., :L]
        y = y + u * self.D.unsqueeze(-1)
        return self.output_linear(self.dropout(self.activation(y)))


class S4Model(nn.Module):
    def __init__(self, d_input, d_output, d_model, d_state, n_layers, dropout):
        super().__init__()
        self.encoder = nn.Linear(d_input, d_model)
        self.s4_layers = nn.ModuleList(S4D(d_model, d_state, dropout) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.dropouts = nn.ModuleList(nn.Dropout1d(dropout) for _ in range(n_layers))
        self.decoder = nn.Linear(d_model, d_output)

    def forward(self, x):
        x = self.encoder(x).transpose(-1, -2)
        for layer, norm, dropout in zip(self.s4_layers, self.norms, self.dropouts, strict=True):
            x = norm((dropout(layer(x)) + x).transpose(-1, -2)).transpose(-1, -2)
        return self.decoder(x.mean(dim=-1))


def setup_optimizer(model, lr, weight_decay):
    kernels = [p for n, p in model.named_parameters() if ".kernel." in n]
    others = [p for n, p in model.named_parameters() if ".kernel." not in n]
    optimizer = torch.optim.AdamW(others, lr=lr, weight_decay=weight_decay)
    optimizer.add_param_group({"params": kernels, "lr": 1e-3, "weight_decay": 0.0})
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", "--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--d_input", type=int, default=3)
    parser.add_argument("--d_model", type=int, default=128)
    parser.add_argument("--d_state", type=int, default=64)
    parser.add_argument("--n_layers", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = S4Model(args.d_input, 10, args.d_model, args.d_state, args.n_layers, args.dropout).to(device)
    optimizer, scheduler = setup_optimizer(model, lr=0.01, weight_decay=0.01)
    inputs = torch.randn(args.batch_size, args.length, args.d_input)
    targets = torch.randint(0, 10, (args.batch_size,))
    correct = total = 0
    for _ in range(args.steps):
        x, y = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=args.bf16):
            outputs = model(x)
            loss = F.cross_entropy(outputs, y)
        loss.backward()
        optimizer.step()
        correct += outputs.argmax(1).eq(y).sum().item()
        total += y.size(0)
    scheduler.step()
    print(f"train accuracy {100 * correct / total:.1f} %")


if __name__ == "__main__":
    main()
