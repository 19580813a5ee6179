from data import DataCollatorWithPadding, ReviewDataset, WordTokenizer
from modeling import TinyConfig, TinyForSequenceClassification
from trainer import EarlyStoppingCallback, Trainer, set_seed
from training_args import TrainingArguments, parse_dataclass


def compute_metrics(preds, labels):
    f1 = []
    for c in range(3):
        tp = ((preds == c) & (labels == c)).sum()
        f1.append(2 * tp / max(1, (preds == c).sum() + (labels == c).sum()))
    return {"acc": float((preds == labels).mean()), "macro_f1": float(sum(f1) / 3)}


def main():
    args = parse_dataclass(TrainingArguments)
    set_seed(args.seed)
    tok = WordTokenizer()
    trainer = Trainer(
        model=TinyForSequenceClassification(TinyConfig(vocab_size=len(tok.vocab))),
        args=args,
        train_dataset=ReviewDataset(640, 1, tok),
        eval_dataset=ReviewDataset(160, 2, tok),
        data_collator=DataCollatorWithPadding(),
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(patience=3)],
    )
    trainer.train()
    m = trainer.evaluate()
    print("final eval loss %.8f acc %.5f" % (m["eval_loss"], m["acc"]))


if __name__ == "__main__":
    main()
