"""A recurrent network that classifies a sequence by its last position."""

from torch import Tensor, nn

_CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class RecurrentNetwork(nn.Module):
    """Layers of one cell, and a linear layer on the last output of the topmost."""

    def __init__(self, cell: str, inputs: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.recurrent = _CELLS[cell](inputs, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, sequences: Tensor) -> Tensor:
        states: Tensor = self.recurrent(sequences)[0]
        logits: Tensor = self.output(states[:, -1])
        return logits
