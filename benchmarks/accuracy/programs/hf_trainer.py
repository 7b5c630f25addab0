"""The Trainer of transformers on a synthetic data set; the model is built from its configuration."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
)


class Tokens(Dataset):
    def __init__(self, count, length, vocab):
        self.data = torch.randint(0, vocab, (64, length))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        ids = self.data[i % len(self.data)]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["gpt2", "bert"], default="gpt2")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=30000)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--optim", default="adamw_torch")
    parser.add_argument("--evaluate", action="store_true")
    args = parser.parse_args()

    if args.model == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(
                n_embd=args.hidden,
                n_layer=args.layers,
                n_head=args.heads,
                n_positions=args.length,
                vocab_size=args.vocab,
            )
        )
    else:
        model = BertForMaskedLM(
            BertConfig(
                hidden_size=args.hidden,
                num_hidden_layers=args.layers,
                num_attention_heads=args.heads,
                intermediate_size=4 * args.hidden,
                max_position_embeddings=args.length,
                vocab_size=args.vocab,
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        training_args = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=args.batch_size,
            gradient_accumulation_steps=args.accumulate,
            gradient_checkpointing=args.gradient_checkpointing,
            fp16=args.fp16,
            bf16=args.bf16,
            optim=args.optim,
            learning_rate=1e-4,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=training_args,
            train_dataset=Tokens(args.batch_size * args.accumulate * args.steps, args.length, args.vocab),
            eval_dataset=Tokens(args.batch_size, args.length, args.vocab),
            data_collator=default_data_collator,
        )
        print(trainer.train().metrics)
        if args.evaluate:
            print(trainer.evaluate())


if __name__ == "__main__":
    main()
