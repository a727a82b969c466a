"""Which machines and GPUs are fit for work: judged from what is seen of them, and kept until they have proven well again."""
