"""A small LSTM that foretells the peak demand of a group, trained while it runs. Needs PyTorch: `pip install
dcblab[lstm]`.

Sans-IO; PyTorch is imported when a predictor is made. Values are taken as log2(1 + bytes) / 32, so that bursts of all
sizes train alike. Every `train_every` observations the network takes a few steps over the windows of the recent past,
each window with the peak of the steps after it as its goal; until the first training the recent peak stands in.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from typing import Any

from dcb.thresholds.policy import series_peak

_SCALE = 32.0


class NoTorchError(ImportError):
    """PyTorch is not installed."""


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise NoTorchError("predictor lstm: PyTorch is not installed: pip install dcblab[lstm]") from None


class LstmPredictor:
    """`Predictor` with an LSTM of `hidden` cells over windows of `window` values; deterministic for a seed."""

    def __init__(
        self,
        *,
        window: int = 16,
        hidden: int = 16,
        history: int = 192,
        train_every: int = 64,
        epochs: int = 60,
        seed: int = 1,
    ) -> None:
        """Raises NoTorchError."""
        torch = self._torch = _torch()
        torch.set_num_threads(1)  # a network this small only waits for other threads
        self._window, self._train_every, self._epochs = window, train_every, epochs
        self._values: deque[float] = deque(maxlen=history)
        self._mean, self._spread = 0.0, 1.0  # of the series, as of the last training
        self._seen = 0
        self._steps = 1
        self.trainings = 0
        self.loss = math.inf
        generator_state = torch.random.get_rng_state()
        torch.manual_seed(seed)  # weights come from the global generator, which is left as it was
        self._lstm = torch.nn.LSTM(1, hidden, batch_first=True)
        self._head = torch.nn.Linear(hidden, 1)
        torch.random.set_rng_state(generator_state)
        parameters = [*self._lstm.parameters(), *self._head.parameters()]
        self._optimizer = torch.optim.Adam(parameters, lr=0.02)

    def observe(self, demand_bytes: float) -> None:
        """The next value of the series; trains now and then."""
        self._values.append(math.log2(1 + max(0.0, demand_bytes)) / _SCALE)
        self._seen += 1
        if self._seen % self._train_every == 0 and len(self._values) >= self._window + self._steps + 8:
            self._train()

    def predict(self, steps: int) -> float:
        """Peak of the next steps, in bytes."""
        self._steps = steps
        if not self._values:
            return 0.0
        recent = list(self._values)[-self._window :]
        if not self.trainings or len(recent) < self._window:
            return float(2 ** (max(recent) * _SCALE) - 1)
        with self._torch.no_grad():
            return float(2 ** min(float(self._forward([recent])[0]) * _SCALE, 48.0) - 1)

    def _forward(self, windows: list[list[float]]) -> Any:
        series = self._torch.tensor(windows, dtype=self._torch.float32).unsqueeze(-1)
        out, _ = self._lstm((series - self._mean) / self._spread)
        return self._head(out[:, -1, :]).squeeze(-1) * self._spread + self._mean

    def _train(self) -> None:
        torch, values, window = self._torch, list(self._values), self._window
        self._mean = sum(values) / len(values)
        self._spread = max(1e-3, math.sqrt(sum((value - self._mean) ** 2 for value in values) / len(values)))
        goals = series_peak(values, self._steps)[window - 1 :]
        windows = [values[at : at + window] for at in range(len(goals))]
        target = torch.tensor(goals, dtype=torch.float32)
        for _ in range(self._epochs):
            self._optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self._forward(windows), target) / self._spread**2
            loss.backward()
            self._optimizer.step()
        self.loss = float(loss.detach())
        self.trainings += 1
