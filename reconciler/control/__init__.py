"""The loop: observe, settle, decide, record, act."""
