"""Beside Slurm: what its commands say of jobs and nodes, and what rounds would have done with them. Nothing is written there.

In: what `squeue`, `scontrol` and `sinfo` print as JSON, and the policy in force. Out: rounds, a history, and a comparison. It may
import what lies below it; the server puts it together.
"""
