"""Slurm: its configuration files and what `sacctmgr` and `scontrol` print, read record by record, and drawn up as policy.

In: files in any order, known by what is in them. Out: a `Drawing`. It imports the rest of `importers`, never back.
"""
