"""Folders of annotated images: recognition, reading, splitting and checks.

What cannot be used is a UserError, whose message names the file and the remedy.
"""
