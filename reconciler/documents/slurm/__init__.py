"""Batch scripts written for Slurm: their #SBATCH lines, as far as a job here can say the same."""
