"""Knowledge distillation (Hinton et al. 2015): a large frozen teacher, a small student, softened targets."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def block(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(), nn.Conv2d(cout, cout, 3, 1, 1),
        nn.BatchNorm2d(cout), nn.ReLU(),
    )  # fmt: skip


def convnet(width, depth, classes):
    layers, cin = [], 3
    for level in range(depth):
        layers.append(block(cin, width * 2**level, 1 if level == 0 else 2))
        cin = width * 2**level
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


class Distiller:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.teacher = convnet(args.teacher_width, args.depth, args.classes).to(self.device).eval()
        if args.half_teacher:
            self.teacher.half()
        for parameter in self.teacher.parameters():
            parameter.requires_grad = False
        self.student = convnet(args.student_width, args.depth, args.classes).to(self.device)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.05, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=args.steps + 1)

    def loss(self, x, y):
        t = self.args.temperature
        with torch.no_grad():
            soft = self.teacher(x.half() if self.args.half_teacher else x).float()
        logits = self.student(x)
        kd = F.kl_div(F.log_softmax(logits / t, dim=1), F.softmax(soft / t, dim=1), reduction="batchmean") * t * t
        return 0.9 * kd + 0.1 * F.cross_entropy(logits, y)

    def fit(self, loader):
        step = 0
        while True:
            for x, y in loader:
                if step == self.args.steps:
                    return
                x, y = x.to(self.device), y.to(self.device)
                loss = self.loss(x, y)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.student.zero_grad(set_to_none=True)
                step += 1
                print("step", step, "loss", loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--teacher-width", type=int, default=96)
    parser.add_argument("--student-width", type=int, default=32)
    parser.add_argument("--temperature", type=float, default=4.0)
    parser.add_argument("--half-teacher", action="store_true")
    args = parser.parse_args()
    data = TensorDataset(
        torch.randn(2 * args.batch_size, 3, args.size, args.size), torch.randint(args.classes, (2 * args.batch_size,))
    )
    Distiller(args).fit(DataLoader(data, args.batch_size, shuffle=True, pin_memory=torch.cuda.is_available()))
