"""Records, policies and facts that several rooms share, with no effects but to read the clock and the files that are shipped."""
