"""Disks and databases that fail under the real store, judged from outside: what was acknowledged is there afterwards."""
