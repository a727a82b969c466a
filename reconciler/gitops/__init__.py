"""From commits to a policy in force: the source, signatures, the plan of a change, guardrails and policy tests."""
