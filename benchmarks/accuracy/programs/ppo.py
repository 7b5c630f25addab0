"""Proximal policy optimisation (Schulman et al. 2017) on an environment that only makes frames up."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical


class FakeEnv:
    """Vectorised Atari-like frames on the host, as numpy."""

    def __init__(self, count, size, seed=0):
        self.rng, self.count = np.random.default_rng(seed), count
        self.frames = self.rng.integers(0, 256, (count, 4, size, size), dtype=np.uint8)

    def reset(self):
        return self.frames

    def step(self, actions):
        reward = self.rng.standard_normal(self.count).astype(np.float32) + 0.01 * actions
        done = self.rng.random(self.count) < 0.01
        return self.frames, reward, done


def layer_init(layer, std=1.414, bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class ActorCritic(nn.Module):
    def __init__(self, size, actions, hidden):
        super().__init__()
        conv = nn.Sequential(
            layer_init(nn.Conv2d(4, 32, 8, stride=4)),
            nn.ReLU(),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(),
            layer_init(nn.Conv2d(64, 64, 3, stride=1)),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            flat = conv(torch.zeros(1, 4, size, size)).shape[1]
        self.network = nn.Sequential(conv, layer_init(nn.Linear(flat, hidden)), nn.ReLU())
        self.actor = layer_init(nn.Linear(hidden, actions), std=0.01)
        self.critic = layer_init(nn.Linear(hidden, 1), std=1)

    def get_value(self, x):
        return self.critic(self.network(x / 255.0))

    def get_action_and_value(self, x, action=None):
        hidden = self.network(x / 255.0)
        policy = Categorical(logits=self.actor(hidden))
        if action is None:
            action = policy.sample()
        return action, policy.log_prob(action), policy.entropy(), self.critic(hidden)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256, help="minibatch of the update")
    parser.add_argument("--steps", type=int, default=5, help="optimizer steps")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--rollout", type=int, default=64)
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--actions", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--gamma", type=float, default=0.99)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = FakeEnv(args.num_envs, args.size)
    model = ActorCritic(args.size, args.actions, args.hidden).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2.5e-4, eps=1e-5)

    shape = (args.rollout, args.num_envs)
    obs = torch.zeros((*shape, 4, args.size, args.size)).to(device)
    actions, logprobs, rewards, dones, values = (torch.zeros(shape).to(device) for _ in range(5))

    next_obs = torch.Tensor(envs.reset()).to(device)
    next_done = torch.zeros(args.num_envs).to(device)
    taken = 0
    while taken < args.steps:
        for t in range(args.rollout):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = model.get_action_and_value(next_obs)
                values[t] = value.flatten()
            actions[t], logprobs[t] = action, logprob
            frames, reward, done = envs.step(action.cpu().numpy())
            rewards[t] = torch.tensor(reward).to(device).view(-1)
            next_obs, next_done = torch.Tensor(frames).to(device), torch.Tensor(done).to(device)

        with torch.no_grad():  # generalised advantage estimation
            next_value = model.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards).to(device)
            last = 0
            for t in reversed(range(args.rollout)):
                alive = 1.0 - (next_done if t == args.rollout - 1 else dones[t + 1])
                following = next_value if t == args.rollout - 1 else values[t + 1]
                delta = rewards[t] + args.gamma * following * alive - values[t]
                advantages[t] = last = delta + args.gamma * 0.95 * alive * last
            returns = advantages + values

        b_obs = obs.reshape((-1, 4, args.size, args.size))
        b_actions, b_logprobs = actions.reshape(-1), logprobs.reshape(-1)
        b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
        order = np.random.default_rng(taken).permutation(args.rollout * args.num_envs)
        for start in range(0, len(order), args.batch_size):
            pick = order[start : start + args.batch_size]
            _, new_logprob, entropy, new_value = model.get_action_and_value(b_obs[pick], b_actions.long()[pick])
            ratio = (new_logprob - b_logprobs[pick]).exp()
            advantage = b_advantages[pick]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 0.9, 1.1)).mean()
            value_loss = 0.5 * ((new_value.view(-1) - b_returns[pick]) ** 2).mean()
            loss = policy_loss - 0.01 * entropy.mean() + 0.5 * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            taken += 1
            if taken >= args.steps:
                break
        print(f"updates {taken} loss {loss.item():.4f} value {value_loss.item():.4f}")


if __name__ == "__main__":
    main()
