"""What a change of policy would do, before it is merged: two revisions on one snapshot, and the differences as data."""
