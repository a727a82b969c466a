"""In which order jobs are served, and whether their queue lets them start."""
