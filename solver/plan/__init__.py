"""What comes out of a round: the plan, its reasons in words, and the checker that judges it."""
