"""The version of the package: what its distribution, its files and its parties say."""

VERSION = "0.1.0"
