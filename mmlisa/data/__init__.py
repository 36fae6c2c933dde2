"""Folders of annotated images. What cannot be used is a UserError, whose message names the file and the remedy."""
