"""From the indicators of a program to the hardware and the image it runs fastest on, and the signed label that says so."""
