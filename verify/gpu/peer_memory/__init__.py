"""All-reduce over GPU memory that ranks of one host write into directly, without multicast."""
