"""The past and the possible: back-tests, traces, showback, and reports of reviews and problems."""
