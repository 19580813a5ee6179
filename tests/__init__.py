"""Tests of autofast. A package, so that test modules can share ``tests.harness``."""
