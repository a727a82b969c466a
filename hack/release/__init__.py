"""What a version is given out as: `make release` makes all of it but the upload, in dist/, from what is committed."""
