"""Commands. A Ctrl-C while they import is one line."""

from jaxformer.commandline import say_interrupts

say_interrupts()
