"""The same small training by Lightning, by Hugging Face's Trainer, and with Accelerate."""

import sys
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
kind = sys.argv[1]
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
held_out = TensorDataset(torch.randn(24, 8), torch.randint(0, 4, (24,)))

if kind == "lightning":
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.layer(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet)
    trainer.fit(Module(), DataLoader(data, 16, shuffle=True), DataLoader(held_out, 12))
elif kind == "trainer":
    import transformers

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x, labels):
            output = self.layer(x)
            return {"loss": nn.functional.cross_entropy(output, labels), "logits": output}

    def rows(dataset):
        return [{"x": x, "labels": y} for x, y in dataset]

    arguments = transformers.TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=16, per_device_eval_batch_size=12, use_cpu=True, report_to=[],
        save_strategy="no", eval_strategy="steps", eval_steps=3,
    )  # fmt: skip
    transformers.Trainer(
        Model(), arguments, train_dataset=rows(data), eval_dataset=rows(held_out)
    ).train()
else:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = nn.Linear(8, 4)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(data, 16, shuffle=True)
    )
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
