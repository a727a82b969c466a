"""The console: pages for browsers, on the port of the API and behind the same guard; templates and modules are plain files."""
