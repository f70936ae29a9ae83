"""NamedTuple for modules of every capture: typing's own, without importing `typing`, which takes a
tenth of a short job's start."""

import sys
from collections import namedtuple

__all__ = ["NamedTuple"]

TYPE_CHECKING = False
# from 3.14 on, a class's body lacks its annotations
if TYPE_CHECKING or sys.version_info >= (3, 14):
    from typing import NamedTuple
else:

    class _Maker(type):
        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body["__annotations__"]
            defaults = [body[field] for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key in body.keys() - fields.keys():
                setattr(made, key, body[key])
            return made

    class NamedTuple(metaclass=_Maker):
        """A tuple with fields by annotations, as in `class Point(NamedTuple): x: int`."""
