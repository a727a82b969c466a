"""What comes out of a round: steps, verdicts, reasons in words, and the certificate."""
