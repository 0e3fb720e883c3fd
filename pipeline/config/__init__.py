"""From words on a command line to checked objects, and errors as one line."""
