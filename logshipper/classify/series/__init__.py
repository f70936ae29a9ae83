"""Recognises series: numbers that recur between the same words in lines that are not JSON. Pure.

- shapes.py: lines with the same words, confirmed after some lines with other numbers;
- names.py: the name of each number in a shape;
- tables.py: rows of numbers below a line of names;
- blocks.py: records of several lines;
- bars.py: the data of a progress bar;
- recogniser.py: one stream's lines in, records out.

docs/series.md documents the rules.
"""
