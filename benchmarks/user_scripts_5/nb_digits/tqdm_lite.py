def tqdm(it):
    n = len(it)
    for i, x in enumerate(it):
        if i % max(1, n // 5) == 0:
            print("\r%3d%%" % (100 * i // n), end="", flush=True)
        yield x
    print("\r", end="")
