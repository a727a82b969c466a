"""The life of a job: its states and who may change them."""
