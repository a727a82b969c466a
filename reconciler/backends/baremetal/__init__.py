"""The control plane's side of node agents: what they tell is merged here, and what they are to do goes out from here."""
