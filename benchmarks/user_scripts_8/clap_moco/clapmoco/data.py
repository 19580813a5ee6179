"""Sound-event clips with captions; both are generated from the same scene description."""
import numpy as np
import torch
from torch.utils.data import Dataset

SR, DUR = 4000, 1.6
EVENTS = ["dog", "siren", "rain", "beep", "engine", "bird"]
VOCAB = ["<pad>", "<cls>", "a", "the", "is", "then", "followed", "by", "with", "loud", "faint", "short", "long", "sound", "of", "in",
         "background", "heard", "and", "barks", "wails", "falls", "beeps", "hums", "sings"] + EVENTS
STOI = {w: i for i, w in enumerate(VOCAB)}
VERB = dict(dog="barks", siren="wails", rain="falls", beep="beeps", engine="hums", bird="sings")


def event_wave(name, n, rng):
    t = np.arange(n) / SR
    if name == "dog":
        return np.sin(2 * np.pi * 400 * t * (1 - 0.3 * t)) * (np.sin(2 * np.pi * 4 * t) > 0.3)
    if name == "siren":
        return np.sin(2 * np.pi * (700 * t + 40 * np.sin(2 * np.pi * 1.5 * t)))
    if name == "rain":
        return rng.randn(n) * 0.5
    if name == "beep":
        return np.sin(2 * np.pi * 1000 * t) * (np.floor(t * 8) % 2)
    if name == "engine":
        return np.sign(np.sin(2 * np.pi * 80 * t)) * 0.6
    return np.sin(2 * np.pi * (1400 * t + 60 * np.sin(2 * np.pi * 9 * t)))


class SceneDataset(Dataset):
    def __init__(self, size, seed, n_fft=256, hop=100, n_mels=64, max_tokens=16, train=True):
        self.size, self.seed, self.train = size, seed, train
        self.n_fft, self.hop, self.n_mels, self.max_tokens = n_fft, hop, n_mels, max_tokens
        rng = np.random.RandomState(seed)
        self.scenes = []
        for _ in range(size):
            a, b = rng.choice(len(EVENTS), 2, replace=False)
            self.scenes.append((EVENTS[a], EVENTS[b], bool(rng.randint(2)), bool(rng.randint(2)), int(rng.randint(1 << 30))))

    def __len__(self):
        return self.size

    def _audio(self, scene):
        a, b, loud, overlap, seed = scene
        rng = np.random.RandomState(seed)
        n = int(SR * DUR)
        wav = np.zeros(n)
        if overlap:
            wav += event_wave(a, n, rng) + 0.3 * event_wave(b, n, rng)
        else:
            wav[:n // 2] = event_wave(a, n // 2, rng)
            wav[n // 2:] = event_wave(b, n - n // 2, rng)
        return wav * (1.0 if loud else 0.25) + 0.02 * rng.randn(n)

    def _mel_matrix(self):
        freqs = np.linspace(0, SR / 2, self.n_fft // 2 + 1)
        mel = lambda f: 1127 * np.log1p(f / 700.0)
        edges = np.linspace(mel(30.0), mel(SR / 2), self.n_mels + 2)
        m = mel(freqs)[None]
        up = (m - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        down = (edges[2:, None] - m) / (edges[2:] - edges[1:-1])[:, None]
        return torch.from_numpy(np.maximum(0, np.minimum(up, down))).float()

    def _logmel(self, wav):
        wav = torch.from_numpy(wav).float()
        spec = torch.stft(wav, self.n_fft, self.hop, window=torch.hann_window(self.n_fft), return_complex=True).abs() ** 2
        return torch.log(self._mel_matrix() @ spec + 1e-5)[:, :64]

    def _caption(self, scene, rng):
        a, b, loud, overlap, _ = scene
        adj = "loud" if loud else "faint"
        if overlap:
            forms = [f"a {adj} {a} {VERB[a]} with {b} in the background", f"{adj} sound of a {a} and {b} heard"]
        else:
            forms = [f"a {adj} {a} {VERB[a]} followed by {b}", f"the {a} {VERB[a]} then a {adj} {b} is heard"]
        return forms[rng.randint(len(forms))]

    def __getitem__(self, idx):
        scene = self.scenes[idx]
        mel = self._logmel(self._audio(scene))
        rng = np.random if self.train else np.random.RandomState(idx)
        ids = [STOI["<cls>"]] + [STOI[w] for w in self._caption(scene, rng).split()]
        ids = ids[:self.max_tokens]
        tokens = torch.tensor(ids + [0] * (self.max_tokens - len(ids)))
        return mel.unsqueeze(0), tokens, len(ids)
