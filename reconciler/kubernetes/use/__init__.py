"""What GPUs do where jobs are pods: figures of NVIDIA's dcgm-exporter, joined to devices, for the book that hears agents, too.

Begin with `reader.py`. It may import what `kubernetes` may; `readings.py` and `boards.py` are pure.
"""
