"""How well forecast starts are kept: jobs of a trace, or drawn ones, replayed under random policies."""
