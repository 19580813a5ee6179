# Konfiguration für das Ziffern-Erkennungs-Rezept (wird als Python-Modul geladen)
sample_rate = 8000
n_fft = 256
hop = 80
n_mels = 32
tokens = "0123456789"       # blank = 0, daher Index + 1
n_train, n_dev = 240, 48
max_digits = 5
batch_size = 12
hidden = 64
lr = 3e-3
epochs = 5
grad_clip = 5.0
seed = 99
specaug = dict(freq_masks=1, freq_width=5, time_masks=2, time_width=8)
half_life = 0.5             # Faktor bei Stillstand auf dev
