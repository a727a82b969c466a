"""Thinks and touches nothing: a frozen snapshot and a frozen policy go in, a plan that is data comes out."""
