import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
words = 5003

torch.manual_seed(0)
text = torch.randint(words, (4, 2, 9), device=device)
model = nn.Sequential(nn.Embedding(words, 8), nn.Linear(8, words)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for batch in text:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
