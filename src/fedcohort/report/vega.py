"""Draw Vega-Lite specifications as SVG, one a line; a process beside the report's runs this file.

It reads a JSON text a line from its input, the version of Vega-Lite and a specification, and writes
the SVG as a JSON text. It loads `vl_convert` alone, so that it starts fast.
"""

from __future__ import annotations

import json
import sys

import vl_convert


def svg(spec: str, version: str) -> str:
    """Return a specification's SVG; by the latest Vega-Lite if the version is not there."""
    known = vl_convert.get_vegalite_versions()
    return vl_convert.vegalite_to_svg(spec, vl_version=version if version in known else known[-1])


def main() -> None:
    """Answer each line until the input ends."""
    for line in sys.stdin:
        version, spec = json.loads(line)
        sys.stdout.write(json.dumps(svg(spec, version)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
