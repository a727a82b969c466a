"""Whether what `quorate why` says would help does help: each change that a verdict names is made, and the round decided again."""
