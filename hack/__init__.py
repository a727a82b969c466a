"""Scripts for people who develop Quorate."""
