"""The version of tidelog, also where it was sent as a file and Python cannot know it."""

from typing import Final

VERSION: Final = "0.1.0"
