"""A replay of the past in, what is short out: demand, what jobs waited for, what more nodes would change, how many meet a target.

It may import the back-test beside it, documents, and what lies below.
"""
