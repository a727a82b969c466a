"""Tests of reviews: what a change of policy would do."""
