"""Started by the launcher of ``dist/krepair`` with the carried Python, which reads no setting of the host."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site"))
# The first word is the file as it was typed.
sys.argv = sys.argv[1:]

from krepair.__main__ import main  # noqa: E402
from krepair.next_command import Next  # noqa: E402

Next.typed_program = sys.argv[0]

main()
