"""Seeded mutants: small changes that break what may not break, each with the tests that have to fail of it.

In come the lists beside this module, one for each area, and the tests that they name; out comes which mutants CI's tests catch.
"""
