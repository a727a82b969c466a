"""Showback: what became of every GPU and second, what each queue, user, class, job or GPU type had of it, and what that costs.

Facts go in (`protocols/capacity.py`, `protocols/placements.py`), an account comes out; nothing here reads a clock or a store.
`account.py` divides the time of every GPU, `statement.py` says which queue, user, class or job had it, `activity.py` how much of
that was used, `tariff.py` prices it by RateCards, `focus.py` writes it as FOCUS, the FinOps Foundation's format.
"""
