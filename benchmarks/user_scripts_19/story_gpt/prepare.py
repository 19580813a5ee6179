# turns a folder of .txt stories into train.bin / val.bin (uint16 gpt2 tokens)
# run once: python prepare.py ~/data/stories
import os, sys, glob
import numpy as np
import tiktoken

enc = tiktoken.get_encoding('gpt2')
src = sys.argv[1]
files = sorted(glob.glob(os.path.join(src, '*.txt')))
n_val = max(1, len(files) // 200)
for split, part in (('val', files[:n_val]), ('train', files[n_val:])):
    ids = []
    for f in part:
        with open(f, encoding='utf-8') as fh:
            ids.extend(enc.encode_ordinary(fh.read()))
        ids.append(enc.eot_token)
    arr = np.array(ids, dtype=np.uint16)
    print(split, len(part), 'files', len(arr), 'tokens')
    arr.tofile(os.path.join(src, split + '.bin'))
