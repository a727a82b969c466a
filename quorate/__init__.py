"""What a training script imports of Quorate: `from quorate import checkpoint`. Standard library only, Python 3.9 and newer."""
