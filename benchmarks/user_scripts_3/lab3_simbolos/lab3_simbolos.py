#!/usr/bin/env python
# coding: utf-8

# # Laboratorio 3 - Clasificación de símbolos con una CNN
# Asignatura: Aprendizaje profundo (curso 3). Exportado desde el cuaderno.

# In[1]:


import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import Dataset, DataLoader, random_split


# In[2]:


SEMILLA = 42
torch.manual_seed(SEMILLA)
np.random.seed(SEMILLA)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
print("usando", device)


# ## 1. Los datos
# Cada imagen es de 28x28 con uno de 6 símbolos dibujados a mano con numpy.

# In[3]:


def dibujar(clase):
    img = np.zeros((28, 28), dtype=np.uint8)
    cx, cy = np.random.randint(9, 19, size=2)
    r = np.random.randint(4, 8)
    yy, xx = np.mgrid[0:28, 0:28]
    if clase == 0:      # círculo
        m = np.abs(np.hypot(xx - cx, yy - cy) - r) < 1.2
    elif clase == 1:    # cuadrado
        m = np.abs(np.maximum(abs(xx - cx), abs(yy - cy)) - r) < 1
    elif clase == 2:    # cruz
        m = ((abs(xx - cx) < 2) & (abs(yy - cy) < r)) | ((abs(yy - cy) < 2) & (abs(xx - cx) < r))
    elif clase == 3:    # aspa
        m = (abs(abs(xx - cx) - abs(yy - cy)) < 1.5) & (abs(xx - cx) < r)
    elif clase == 4:    # rombo
        m = np.abs(abs(xx - cx) + abs(yy - cy) - r) < 1.5
    else:               # disco
        m = np.hypot(xx - cx, yy - cy) < r
    img[m] = 200
    ruido = np.random.randint(0, 55, size=(28, 28))
    return np.clip(img + ruido, 0, 255).astype(np.uint8)


class Simbolos(Dataset):
    def __init__(self, n):
        self.y = np.random.randint(0, 6, size=n)
        self.X = np.stack([dibujar(c) for c in self.y])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        # pasar a tensor y normalizar
        x = torch.tensor(self.X[i], dtype=torch.float32).unsqueeze(0)
        x = (x / 255.0 - 0.5) / 0.5
        y = torch.tensor(self.y[i]).long()
        return x, y


todo = Simbolos(3000)
n_val = 600
train_set, val_set = random_split(todo, [len(todo) - n_val, n_val])
train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
val_loader = DataLoader(val_set, batch_size=32, shuffle=False)


# ## 2. La red

# In[4]:


class Red(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(32)
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 7 * 7, 64)
        self.fc2 = nn.Linear(64, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = x.view(x.size(0), -1)
        x = self.drop(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


red = Red().to(device)
criterio = nn.NLLLoss()
optimizador = optim.Adam(red.parameters(), lr=1e-3)
print("parámetros:", sum(p.numel() for p in red.parameters()))


# ## 3. Entrenamiento

# In[5]:


def precision(salida, y):
    pred = salida.argmax(dim=1)
    return (pred == y).float().mean().item() * 100


historia_train, historia_val, historia_acc = [], [], []
historia_pasos = []       # todas las pérdidas, para la gráfica del final
EPOCAS = 4

for epoca in range(EPOCAS):
    t0 = time.time()
    red.train()
    suma = 0.0
    suma_acc = 0.0
    for i, (x, y) in enumerate(train_loader):
        x = x.to(device)
        y = y.to(device)
        optimizador.zero_grad()
        salida = red(x)
        loss = criterio(salida, y)
        loss.backward()
        optimizador.step()
        historia_pasos.append(loss)
        suma += loss.item()
        suma_acc += precision(salida, y)
        if i % 25 == 24:
            print("  [%d, %3d] pérdida: %.4f" % (epoca + 1, i + 1, loss.item()))

    # validación
    red.eval()
    val_loss, aciertos, total = 0.0, 0, 0
    for x, y in val_loader:
        x = x.to(device)
        y = y.to(device)
        salida = red(x)
        val_loss += criterio(salida, y).item() * len(y)
        aciertos += (salida.argmax(1) == y).sum().item()
        total += len(y)

    historia_train.append(suma / len(train_loader))
    historia_val.append(val_loss / total)
    historia_acc.append(100 * aciertos / total)
    print("Época %d: train %.4f (%.2f%%)  val %.4f (%.2f%%)" % (
        epoca + 1, historia_train[-1], suma_acc / len(train_loader), historia_val[-1], historia_acc[-1]))


# ## 4. Gráfica de texto y matriz de confusión

# In[6]:


curva = [l.item() for l in historia_pasos]
for k in range(0, len(curva), 30):
    media = sum(curva[k:k + 30]) / len(curva[k:k + 30])
    print("%4d %s %.3f" % (k, "#" * int(math.ceil(media * 20)), media))

confusion = torch.zeros(6, 6, dtype=torch.long)
with torch.no_grad():
    for x, y in val_loader:
        pred = red(x.to(device)).argmax(1).cpu()
        for t, p in zip(y, pred):
            confusion[t, p] += 1
print(confusion)


# ## 5. ¿Qué imagen "quiere" ver la red? (subir el gradiente de la entrada)

# In[7]:


red.eval()
sueno = torch.zeros(6, 1, 28, 28, device=device, requires_grad=True)
opt_sueno = optim.SGD([sueno], lr=5.0)
for paso in range(20):
    opt_sueno.zero_grad()
    objetivo = red(sueno)[torch.arange(6), torch.arange(6)].sum()
    (-objetivo + 0.01 * sueno.pow(2).sum()).backward()
    opt_sueno.step()
print("suma final de log-prob de los sueños: %.4f" % objetivo.item())
torch.save(red.state_dict(), "red_lab3.pt")
