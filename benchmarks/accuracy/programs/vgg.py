# VGG (Simonyan & Zisserman 2014). Plain script style, everything at module level.
import argparse

import torch
import torch.nn as nn
import torch.optim as optim

CFG = {
    "11": [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"],
    "16": [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"],
}
parser = argparse.ArgumentParser()
parser.add_argument("--depth", choices=CFG, default="16")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--image-size", type=int, default=224)
parser.add_argument("--classes", type=int, default=1000)
parser.add_argument("--hidden", type=int, default=4096)
parser.add_argument("--width", type=float, default=1.0)
parser.add_argument("--bn", action="store_true")
parser.add_argument("--optimizer", default="adam", choices=["adam", "sgd", "rmsprop", "adagrad"])
parser.add_argument("--save", "--out", dest="out", default="")
args = parser.parse_args()


def make_features():
    layers, channels = [], 3
    for v in CFG[args.depth]:
        if v == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            continue
        v = int(v * args.width)
        layers.append(nn.Conv2d(channels, v, kernel_size=3, padding=1))
        if args.bn:
            layers.append(nn.BatchNorm2d(v))
        layers.append(nn.ReLU(inplace=True))
        channels = v
    return nn.Sequential(*layers), channels


features, channels = make_features()
model = nn.Sequential(
    features,
    nn.AdaptiveAvgPool2d((7, 7)),
    nn.Flatten(),
    nn.Linear(channels * 49, args.hidden),
    nn.ReLU(True),
    nn.Dropout(),
    nn.Linear(args.hidden, args.hidden),
    nn.ReLU(True),
    nn.Dropout(),
    nn.Linear(args.hidden, args.classes),
).cuda()
criterion = nn.CrossEntropyLoss().cuda()
if args.optimizer == "adam":
    optimizer = optim.Adam(model.parameters(), lr=1e-4)
elif args.optimizer == "rmsprop":
    optimizer = optim.RMSprop(model.parameters(), lr=1e-4, alpha=0.9, momentum=0.9)
elif args.optimizer == "adagrad":
    optimizer = optim.Adagrad(model.parameters(), lr=1e-3)
else:
    optimizer = optim.SGD(model.parameters(), lr=0.01)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)

inputs = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
labels = torch.randint(0, args.classes, (args.batch_size,))

running_loss = 0.0
for i in range(args.steps):
    x, y = inputs.cuda(), labels.cuda()
    optimizer.zero_grad()
    outputs = model(x)
    loss = criterion(outputs, y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    running_loss += loss.item()
    print("[%d] loss: %.3f" % (i + 1, running_loss / (i + 1)))  # noqa: UP031 # written the way older scripts are

if args.out:
    torch.save(model.state_dict(), args.out)
print("Finished Training")
