"""``python -m autofast`` and the console script, which Ctrl-C ends while they are imported, too."""


def main() -> None:
    """All that a terminal starts."""
    try:
        from autofast.cli import main as start

        start()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
