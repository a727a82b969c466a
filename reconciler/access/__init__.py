"""Who asks, and what they may: identities, roles by team and queue, and the rules that follow from them."""
