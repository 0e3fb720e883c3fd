"""What each lever is worth."""
