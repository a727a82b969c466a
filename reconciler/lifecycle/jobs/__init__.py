"""The life of a job: its states and what may change them."""
