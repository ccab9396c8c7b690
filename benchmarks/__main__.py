"""``python -m benchmarks`` runs the suite."""

import sys

from benchmarks.suite import main

sys.exit(main())
