"""The plan as one comment on each open pull request, kept up to date through the API of the repository host."""
