"""What a real run of a program does: its indicators, and where its time goes."""

from tonnage.verbs import make_callable

make_callable(__name__)
