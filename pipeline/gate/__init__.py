"""The CI regression job: is this version as fast and as accepted as the reference?"""
