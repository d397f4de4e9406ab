"""The peer of recall_speed.py: noisy recall in PyTorch, written as a user would write it.

Model, loss and optimizer are those of the paper's public code: an nn.Linear for each matrix, logits
at all positions, and the loss where the mask is 1. `Data.batch` draws sequences token by token with
numpy's `choice`, as that code does. `Data.walk` is faster: it draws one position of all sequences
at a time with torch.multinomial. This file does not use jaxformer.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """softmax(x Wk x^T / sqrt(d)) x Wv Wo; the query matrix is the identity."""

    def __init__(self, d: int, length: int):
        super().__init__()
        self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.register_buffer("mask", torch.ones(length, length).tril().bool())

    def forward(self, x):
        scores = x @ self.wk(x).transpose(1, 2) / math.sqrt(x.shape[-1])
        weights = scores.masked_fill(~self.mask, float("-inf")).softmax(-1)
        return self.wo(weights @ self.wv(x))


class Model(nn.Module):
    def __init__(self, vocab: int, length: int, d: int, layers: int = 2):
        super().__init__()
        self.embed = nn.Embedding(vocab, d).requires_grad_(False)
        self.register_buffer("positions", torch.randn(length, d))
        self.attentions = nn.ModuleList(Attention(d, length) for _ in range(layers))
        self.feed_forwards = nn.ModuleList(
            nn.Sequential(
                nn.Linear(d, 4 * d, bias=False), nn.ReLU(), nn.Linear(4 * d, d, bias=False)
            )
            for _ in range(layers)
        )
        self.unembed = nn.Linear(d, vocab, bias=False).requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions
        for attention, feed_forward in zip(self.attentions, self.feed_forwards, strict=True):
            x = x + attention(x)
            x = x + feed_forward(x)
        return self.unembed(x)


class Data:
    """Batches (inputs, targets, mask) of noisy recall.

    In each sequence the trigger is followed by one answer `ybar` or, with probability `alpha`, by
    the token `noise`. The mask is 1 at each trigger of a sequence but the first, and 0 elsewhere.
    """

    def __init__(self, unigram, bigram, trigger: int, noise: int, alpha: float, length: int):
        self.unigram, self.bigram = unigram / unigram.sum(), bigram
        self.trigger, self.noise, self.alpha, self.length = trigger, noise, alpha, length
        self.rng = np.random.default_rng(0)
        self.rows = torch.tensor(bigram)  # probabilities of the next token, by token

    def sequence(self) -> list[int]:
        rng, vocab = self.rng, len(self.unigram)
        ybar = rng.integers(self.noise)  # any token but the noise, which is the last one
        tokens = [rng.choice(vocab, p=self.unigram)]
        while len(tokens) <= self.length:
            if tokens[-1] == self.trigger:
                tokens.append(self.noise if rng.random() < self.alpha else ybar)
            else:
                tokens.append(rng.choice(vocab, p=self.bigram[tokens[-1]]))
        return tokens

    def batch(self, size: int):
        """Returns a batch whose sequences are drawn one after the other, token by token."""
        return self._split(torch.tensor(np.array([self.sequence() for _ in range(size)])))

    def walk(self, size: int):
        """Returns a batch whose sequences are drawn together, position by position."""
        ybar = torch.randint(self.noise, (size,))
        tokens = [torch.multinomial(torch.tensor(self.unigram), size, replacement=True)]
        for _ in range(self.length):
            noisy = torch.rand(size) < self.alpha
            answer = torch.where(noisy, torch.tensor(self.noise), ybar)
            drawn = torch.multinomial(self.rows[tokens[-1]], 1)[:, 0]
            tokens.append(torch.where(tokens[-1] == self.trigger, answer, drawn))
        return self._split(torch.stack(tokens, 1))

    def _split(self, tokens):
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        is_trigger = inputs == self.trigger
        return inputs, targets, is_trigger & (is_trigger.cumsum(1) >= 2)


class Trainer:
    """One model and its optimizer; `step` is one step on a batch."""

    def __init__(self, vocab: int, length: int, d: int, learning_rate: float = 0.1):
        torch.manual_seed(0)
        self.model = Model(vocab, length, d)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(trained, lr=learning_rate, momentum=0.9, weight_decay=1e-4)

    def step(self, inputs, targets, mask) -> float:
        logits = self.model(inputs)
        loss = functional.cross_entropy(logits[mask], targets[mask])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
