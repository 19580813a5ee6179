"""Tags of short notes: python tagging.py --epochs 9 --tags 12."""
from herbarium.engine import main

if __name__ == "__main__":
    main()
