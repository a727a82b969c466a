"""What each queue is due: guarantees, fair shares, lending, caps, use, and which running work is borrowed."""
