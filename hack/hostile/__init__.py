"""Hostile input for whatever reads policy: documents, repositories, and histories, made by seed; `python -m hack.hostile`."""
