"""From the indicators of a program to the hardware and the image it runs fastest on, and the signed label that says so."""

from tonnage.verbs import make_callable

make_callable(__name__)
