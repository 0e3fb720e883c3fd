"""Speed of our own code against peers and floors, paired in one run."""
