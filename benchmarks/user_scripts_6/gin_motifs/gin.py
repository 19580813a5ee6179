import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, num_layers, input_dim, hidden_dim, output_dim):
        super(MLP, self).__init__()
        self.num_layers = num_layers
        self.linears = torch.nn.ModuleList()
        self.batch_norms = torch.nn.ModuleList()
        dims = [input_dim] + [hidden_dim] * (num_layers - 1) + [output_dim]
        for layer in range(num_layers):
            self.linears.append(nn.Linear(dims[layer], dims[layer + 1]))
        for layer in range(num_layers - 1):
            self.batch_norms.append(nn.BatchNorm1d(hidden_dim))

    def forward(self, h):
        for layer in range(self.num_layers - 1):
            h = F.relu(self.batch_norms[layer](self.linears[layer](h)))
        return self.linears[self.num_layers - 1](h)


class GraphCNN(nn.Module):
    def __init__(self, num_layers, num_mlp_layers, input_dim, hidden_dim, output_dim, final_dropout,
                 learn_eps, graph_pooling_type, device):
        super(GraphCNN, self).__init__()
        self.final_dropout = final_dropout
        self.device = device
        self.num_layers = num_layers
        self.graph_pooling_type = graph_pooling_type
        self.learn_eps = learn_eps
        self.eps = nn.Parameter(torch.zeros(num_layers - 1))
        self.mlps = nn.ModuleList()
        self.batch_norms = nn.ModuleList()
        for layer in range(num_layers - 1):
            self.mlps.append(MLP(num_mlp_layers, input_dim if layer == 0 else hidden_dim, hidden_dim, hidden_dim))
            self.batch_norms.append(nn.BatchNorm1d(hidden_dim))
        self.linears_prediction = nn.ModuleList()
        for layer in range(num_layers):
            self.linears_prediction.append(nn.Linear(input_dim if layer == 0 else hidden_dim, output_dim))

    def preprocess_neighbors_sumavepool(self, batch_graph):
        # create block diagonal sparse matrix
        edge_mat_list = []
        start_idx = [0]
        for i, graph in enumerate(batch_graph):
            start_idx.append(start_idx[i] + graph.n)
            edge_mat_list.append(graph.edge_mat + start_idx[i])
        Adj_block_idx = torch.cat(edge_mat_list, 1)
        Adj_block_elem = torch.ones(Adj_block_idx.shape[1])
        # Add self-loops in the adjacency matrix if learn_eps is False
        if not self.learn_eps:
            num_node = start_idx[-1]
            self_loop_edge = torch.LongTensor([range(num_node), range(num_node)])
            Adj_block_idx = torch.cat([Adj_block_idx, self_loop_edge], 1)
            Adj_block_elem = torch.cat([Adj_block_elem, torch.ones(num_node)], 0)
        Adj_block = torch.sparse_coo_tensor(Adj_block_idx, Adj_block_elem,
                                            torch.Size([start_idx[-1], start_idx[-1]]))
        return Adj_block.to(self.device)

    def preprocess_graphpool(self, batch_graph):
        start_idx = [0]
        for i, graph in enumerate(batch_graph):
            start_idx.append(start_idx[i] + graph.n)
        idx, elem = [], []
        for i, graph in enumerate(batch_graph):
            if self.graph_pooling_type == "average":
                elem.extend([1. / graph.n] * graph.n)
            else:
                elem.extend([1] * graph.n)
            idx.extend([[i, j] for j in range(start_idx[i], start_idx[i + 1], 1)])
        elem = torch.FloatTensor(elem)
        idx = torch.LongTensor(idx).transpose(0, 1)
        pool = torch.sparse_coo_tensor(idx, elem, torch.Size([len(batch_graph), start_idx[-1]]))
        return pool.to(self.device)

    def next_layer_eps(self, h, layer, Adj_block):
        pooled = torch.spmm(Adj_block, h)
        # Reweights the center node representation when aggregating it with its neighbors
        pooled = pooled + (1 + self.eps[layer]) * h
        return F.relu(self.batch_norms[layer](self.mlps[layer](pooled)))

    def next_layer(self, h, layer, Adj_block):
        pooled = torch.spmm(Adj_block, h)
        return F.relu(self.batch_norms[layer](self.mlps[layer](pooled)))

    def forward(self, batch_graph):
        X_concat = torch.cat([graph.node_features for graph in batch_graph], 0).to(self.device)
        hidden_rep = [X_concat]
        h = X_concat
        for layer in range(self.num_layers - 1):
            Adj_block = self.preprocess_neighbors_sumavepool(batch_graph)
            if self.learn_eps:
                h = self.next_layer_eps(h, layer, Adj_block)
            else:
                h = self.next_layer(h, layer, Adj_block)
            hidden_rep.append(h)

        score_over_layer = 0
        graph_pool = self.preprocess_graphpool(batch_graph)
        for layer, h in enumerate(hidden_rep):
            pooled_h = torch.spmm(graph_pool, h)
            score_over_layer += F.dropout(self.linears_prediction[layer](pooled_h), self.final_dropout,
                                          training=self.training)
        return score_over_layer
