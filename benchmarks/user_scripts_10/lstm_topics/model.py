import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

use_cuda = torch.cuda.is_available()


class LSTMClassifier(nn.Module):
    def __init__(self, vocab_size, num_classes, embed_dim=200, hidden_dim=256, num_layers=2, dropout=0.3):
        super(LSTMClassifier, self).__init__()
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(embed_dim, hidden_dim, num_layers, batch_first=True,
                            bidirectional=True, dropout=dropout)
        self.attn = nn.Linear(2 * hidden_dim, 1)
        self.fc = nn.Linear(2 * hidden_dim, num_classes)

    def init_hidden(self, batch_size):
        h0 = Variable(torch.zeros(2 * self.num_layers, batch_size, self.hidden_dim))
        c0 = Variable(torch.zeros(2 * self.num_layers, batch_size, self.hidden_dim))
        if use_cuda:
            h0, c0 = h0.cuda(), c0.cuda()
        return (h0, c0)

    def forward(self, inputs, lengths):
        hidden = self.init_hidden(inputs.size(0))
        embeds = self.dropout(self.embedding(inputs))
        packed = pack_padded_sequence(embeds, lengths.cpu(), batch_first=True)
        outputs, hidden = self.lstm(packed, hidden)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)

        # attention over the time steps, without the padding
        mask = torch.zeros(outputs.size(0), outputs.size(1))
        for i in range(outputs.size(0)):
            mask[i, :lengths[i]] = 1
        if use_cuda:
            mask = mask.cuda()
        scores = self.attn(outputs).squeeze(2)
        scores = scores.masked_fill(mask == 0, -1e9)
        weights = F.softmax(scores, dim=1)
        context = (outputs * weights.unsqueeze(2)).sum(1)
        return self.fc(self.dropout(context))
