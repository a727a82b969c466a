"""The integer program of a round: stated from a snapshot, run by an optimiser that is handed in, and made concrete again."""
