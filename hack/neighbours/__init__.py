"""One tenant floods a real control plane, and another works on as before: what it waits for, against the quiet between floods."""
