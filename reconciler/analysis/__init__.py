"""The past and the possible: back-tests, traces, and reports of reviews and problems."""
