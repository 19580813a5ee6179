# my first ResNet, trained on my own images (npz with x: N,H,W,3 uint8 and y)
# python resnet.py npz=images.npz width=64 epochs=30 batch=256
import sys
import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

opts = dict(npz='images.npz', width='64', epochs='30', batch='256', accum='2', lr='0.05', seed='1')
opts.update(a.split('=') for a in sys.argv[1:])
torch.manual_seed(int(opts['seed']))
device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')
MEAN = np.array([0.5, 0.5, 0.5], dtype=np.float32)
STD = np.array([0.25, 0.25, 0.25], dtype=np.float32)


class NpzImages(Dataset):
	def __init__(self, path, train):
		z = np.load(path)
		n = len(z['y'])
		cut = int(n * 0.8)
		sl = slice(0, cut) if train else slice(cut, n)
		self.x = z['x'][sl]
		self.y = z['y'][sl].astype(np.int64)

	def __len__(self):
		return len(self.y)

	def __getitem__(self, i):
		img = self.x[i].astype(np.float32) / 255.0
		img = (img - MEAN) / STD
		img = torch.from_numpy(img).permute(2, 0, 1)
		return img, self.y[i]


class BasicBlock(nn.Module):
	def __init__(self, cin, cout, stride):
		super().__init__()
		self.conv1 = nn.Conv2d(cin, cout, 3, stride=stride, padding=1)
		self.bn1 = nn.BatchNorm2d(cout)
		self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
		self.bn2 = nn.BatchNorm2d(cout)
		self.short = nn.Sequential()
		if stride != 1 or cin != cout:
			self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride=stride), nn.BatchNorm2d(cout))

	def forward(self, x):
		out = F.relu(self.bn1(self.conv1(x)))
		out = self.bn2(self.conv2(out))
		out += self.short(x)
		return F.relu(out)


class ResNet(nn.Module):
	def __init__(self, w, classes):
		super().__init__()
		self.conv1 = nn.Conv2d(3, w, 3, padding=1)
		self.bn1 = nn.BatchNorm2d(w)
		self.layers = nn.Sequential(BasicBlock(w, w, 1), BasicBlock(w, 2 * w, 2), BasicBlock(2 * w, 4 * w, 2))
		self.fc = nn.Linear(4 * w, classes)

	def forward(self, x):
		x = F.relu(self.bn1(self.conv1(x)))
		x = self.layers(x)
		x = F.adaptive_avg_pool2d(x, 1).view(x.size(0), -1)
		return self.fc(x)


def mixup(x, y, alpha):
	lam = np.random.RandomState(len(mixup_log)).beta(alpha, alpha)
	mixup_log.append(lam)
	perm = torch.randperm(x.size(0)).to(x.device)
	return lam * x + (1 - lam) * x[perm], y, y[perm], lam


mixup_log = []


def main():
	train_set = NpzImages(opts['npz'], True)
	test_set = NpzImages(opts['npz'], False)
	train_loader = DataLoader(train_set, batch_size=int(opts['batch']), shuffle=True)
	test_loader = DataLoader(test_set, batch_size=int(opts['batch']), shuffle=False)

	net = ResNet(int(opts['width']), int(train_set.y.max()) + 1)
	net = net.to(device)
	if device.type == 'cuda':
		net = nn.DataParallel(net)
	accum = int(opts['accum'])
	epochs = int(opts['epochs'])
	opt = torch.optim.SGD(net.parameters(), lr=float(opts['lr']), momentum=0.9, weight_decay=5e-4, nesterov=True)
	sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
	crit = nn.CrossEntropyLoss(reduction='none')

	best_acc = 0
	best_net = None
	start = time.time()
	for epoch in range(epochs):
		net.train()
		total_loss = 0
		right = 0
		seen = 0
		opt.zero_grad()
		for i, (x, y) in enumerate(train_loader):
			x, y = x.to(device), y.to(device)
			x, ya, yb, lam = mixup(x, y, 0.2)
			out = net(x)
			loss = (lam * crit(out, ya) + (1 - lam) * crit(out, yb)).mean()
			assert not torch.isnan(loss).any(), 'loss is nan'
			(loss / accum).backward()
			if (i + 1) % accum == 0:
				opt.step()
				opt.zero_grad()
			total_loss += loss
			right += (out.argmax(1) == ya).sum().item()
			seen += len(x)
		# what is left over from the last half window is stepped too
		if len(train_loader) % accum != 0:
			opt.step()
			opt.zero_grad()
		sched.step()
		if device.type == 'cuda':
			torch.cuda.synchronize()
		sys.stderr.write('epoch took %.2f s\n' % (time.time() - start))
		start = time.time()
		print('epoch', epoch, 'loss', total_loss.item() / len(train_loader), 'acc', right / seen)

		# test
		net.eval()
		right = 0
		test_loss = 0
		wrong = []
		for x, y in test_loader:
			x, y = x.to(device), y.to(device)
			out = net(x)
			test_loss += crit(out, y).sum().item()
			pred = out.argmax(1)
			right += (pred == y).sum().item()
			for p, t in zip(pred, y):
				if p.item() != t.item():
					wrong.append((t.item(), p.item()))
		acc = right / len(test_set)
		print('   test loss', test_loss / len(test_set), 'acc', acc, 'first wrong', wrong[:3])
		if acc >= best_acc:
			best_acc = acc
			best_net = net.state_dict()
			torch.save(best_net, 'best.pth')
	print('best', best_acc, 'mean lam', np.mean(mixup_log))

	# the worst training images: loss of each one, in the order of the file
	net.load_state_dict(torch.load('best.pth'))
	net.eval()
	losses = []
	for i in range(len(train_set)):
		x, y = train_set[i]
		with torch.no_grad():
			l = crit(net(x.unsqueeze(0).to(device)), torch.tensor([y]).to(device))
		losses.append(l.item())
	worst = np.argsort(losses)[::-1][:5]
	print('worst', worst.tolist(), [losses[k] for k in worst])


if __name__ == '__main__':
	main()
