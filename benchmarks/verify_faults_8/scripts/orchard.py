from grove.main import main

if __name__ == "__main__":
    main()
