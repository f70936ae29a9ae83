"""A progress bar's line on a terminal that is narrower than the job's: the bar itself gets shorter,
so that percentage, counts, rate and remaining time stay. Pure."""

import re

_LEAST = 4  # fewer cells are no bar
# possessive, for a single pass over any text
_BAR = re.compile(
    r"(?<=[|\[])[#=\-_.<>*\u2500-\u259f ]++(?=[|\]])"  # between | and |, or [ and ]
    r"|(?<=\|)#*+[0-9]?+ *+(?=\|)"  # tqdm's ASCII bar, whose last cell is a digit
    r"|\A[#=O\- ]++(?=[0-9])"  # curl's
    r"|[#=\-\u2500-\u259f]++"
)
_BLANKS = re.compile(" ++")


def shortened(text: str, excess: int) -> str:
    """Remove `excess` cells from the text's bars, or else from its blanks; with too few, the text
    stays longer.

    The rest of a bar shows the same progress.
    """
    for pattern in (_BAR, _BLANKS):
        if excess > 0:
            size = len(text)
            text = _shorter(text, excess, pattern)
            excess -= size - len(text)
    return text


def _shorter(text: str, excess: int, pattern: re.Pattern[str]) -> str:
    """Takes cells out of all that the pattern finds, each by its length, down to a cell."""
    bars = [match.span() for match in pattern.finditer(text) if len(match[0]) >= _LEAST]
    spare = sum(end - begin - 1 for begin, end in bars)
    excess = min(excess, spare)
    pieces, at = [], 0
    for begin, end in bars:
        size = end - begin
        share = -(-excess * (size - 1) // spare)
        excess, spare = excess - share, spare - (size - 1)
        cells = size - share
        pieces.append(text[at:begin])
        pieces.extend(text[begin + cell * size // cells] for cell in range(cells))
        at = end
    return "".join([*pieces, text[at:]])
