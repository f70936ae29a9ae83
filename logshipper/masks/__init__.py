"""Masks secrets in command lines and in lines of the log. Pure. Imports the top level."""
