"""Double DQN with a dueling head: replay memory on the device, target network updated softly, Huber loss."""

import argparse
from collections import namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", "state action reward next_state done")


class ReplayMemory:
    def __init__(self, capacity, shape, device):
        self.capacity = capacity
        self.state = torch.randint(0, 256, (capacity, *shape), dtype=torch.uint8, device=device)
        self.action = torch.randint(0, 6, (capacity, 1), device=device)
        self.reward = torch.randn(capacity, device=device)
        self.done = (torch.rand(capacity, device=device) < 0.01).float()

    def sample(self, n):
        i = torch.randint(0, self.capacity - 1, (n,), device=self.state.device)
        return Transition(
            self.state[i].float() / 255, self.action[i], self.reward[i], self.state[i + 1].float() / 255, self.done[i]
        )


class Dueling(nn.Module):
    def __init__(self, channels, size, actions, hidden):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(channels, 32, 8, stride=4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
        side = ((size - 8) // 4 + 1 - 4) // 2 + 1 - 2
        self.value = nn.Sequential(nn.Linear(64 * side * side, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.advantage = nn.Sequential(nn.Linear(64 * side * side, hidden), nn.ReLU(), nn.Linear(hidden, actions))

    def forward(self, x):
        x = self.conv(x)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=1, keepdim=True)


class MLP(nn.Sequential):
    def __init__(self, observations, actions, hidden):
        super().__init__(
            nn.Linear(observations, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions)
        )


def optimize_model(policy, target, optimizer, memory, args):
    batch = memory.sample(args.batch_size)
    q = policy(batch.state).gather(1, batch.action).squeeze(1)
    with torch.no_grad():
        best = policy(batch.next_state).argmax(dim=1, keepdim=True)
        bootstrap = target(batch.next_state).gather(1, best).squeeze(1)
        expected = batch.reward + args.gamma * bootstrap * (1 - batch.done)
    loss = nn.functional.smooth_l1_loss(q, expected)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    return loss


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--observation", choices=["vector", "pixels"], default="vector")
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--memory", type=int, default=10000)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.observation == "pixels":
        shape, make = (4, args.size, args.size), lambda: Dueling(4, args.size, 6, args.hidden)
    else:
        shape, make = (8,), lambda: MLP(8, 6, args.hidden)
    policy_net, target_net = make().to(device), make().to(device)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-4, amsgrad=True)
    memory = ReplayMemory(args.memory, shape, device)
    for _ in range(args.steps):
        loss = optimize_model(policy_net, target_net, optimizer, memory, args)
        target_state, policy_state = target_net.state_dict(), policy_net.state_dict()
        for key in policy_state:
            target_state[key] = policy_state[key] * args.tau + target_state[key] * (1 - args.tau)
        target_net.load_state_dict(target_state)
    print("complete", loss.item())
