"""The agent of one node: runs there, and knows neither stores nor the loop."""
