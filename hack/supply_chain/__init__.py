"""What is asked of everything that a release is made of: licences, known advisories, and that no secret was ever committed."""
