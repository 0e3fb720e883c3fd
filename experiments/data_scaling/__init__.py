"""How does the accept length grow with the number of training samples?"""
