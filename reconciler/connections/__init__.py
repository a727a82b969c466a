"""Connections that others open to this process: how many there may be, which of them give way, and how long they may take.

It imports no other room.
"""
