"""From commits to a policy in force: the source, signatures, the plan of a change and its comments, guardrails and policy tests."""
