"""The parts of Lightning that work with `attnlab.build`, for the tests and for the reference page.

A row is an argument of `Trainer`, with which the test trains, or a statement with the names `trainer`,
`module` and `data`. `tests/api/test_trainer.py` runs each row.
"""

from typing import NamedTuple

LONGER = "The learning-rate schedule ends after 6 steps, and this training has 12"


class Row(NamedTuple):
    """One row of the table."""

    code: str
    refused: str = ""  # the start of the error
    settings: str = ""  # settings of `attnlab.build`
    processes: bool = False  # starts processes, which the test runs in a script


ROWS = {
    "Length and parts of the training": [
        Row("max_epochs=2"),
        Row("max_steps=2"),
        Row("min_epochs=1, max_epochs=2"),
        Row("min_steps=2"),
        Row('max_time="00:00:10:00", max_epochs=1'),
        Row(
            'max_time={"minutes": 10}, max_epochs=None',
            "The learning-rate schedule needs the number of steps: create the Trainer with max_epochs",
        ),
        Row('max_time={"milliseconds": 50}, max_epochs=None', settings="scheduler=constant"),
        Row("fast_dev_run=True"),
        Row("fast_dev_run=2"),
        Row("limit_train_batches=1"),
        Row("limit_train_batches=0.5"),
        Row("limit_val_batches=1"),
        Row("limit_val_batches=0"),
        Row("overfit_batches=1, max_epochs=2"),
        Row("overfit_batches=0.5", settings="batching.evaluation_batch_size=1"),
        Row("val_check_interval=0.5"),
        Row("val_check_interval=2, check_val_every_n_epoch=None"),
        Row("check_val_every_n_epoch=2, max_epochs=2"),
        Row("num_sanity_val_steps=0"),
        Row("num_sanity_val_steps=-1"),
        Row("reload_dataloaders_every_n_epochs=1, max_epochs=2"),
    ],
    "Optimization and precision": [
        Row("accumulate_grad_batches=2"),
        Row("gradient_clip_val=0.5"),
        Row('gradient_clip_val=0.5, gradient_clip_algorithm="value"'),
        Row('precision="32-true"'),
        Row('precision="bf16-mixed"'),
        Row('precision="16-mixed"'),
        Row('precision="16-mixed", gradient_clip_val=0.5', settings="optimizer.fused=false"),
        Row('precision="64-true"'),
        Row('precision="bf16-true"'),
        Row("deterministic=True"),
        Row("benchmark=True"),
        Row("detect_anomaly=True"),
        Row("inference_mode=False"),
    ],
    "Devices and strategies": [
        Row("devices=1"),
        Row('accelerator="auto"'),
        Row('strategy="auto"'),
        Row('strategy=SingleDeviceStrategy("cpu")'),
        Row("use_distributed_sampler=True"),
        Row("sync_batchnorm=True"),
        Row('strategy="ddp", devices=2', processes=True),
        Row('strategy="ddp_find_unused_parameters_true", devices=2', processes=True),
        Row('strategy="ddp_spawn", devices=2', processes=True),
        Row('strategy="ddp_notebook", devices=2', processes=True),
    ],
    "Output": [
        Row("log_every_n_steps=2"),
        Row("barebones=True, max_epochs=1"),
        Row("enable_progress_bar=True"),
        Row("enable_model_summary=True"),
        Row('default_root_dir="lightning"'),
        Row('profiler="simple"'),
        Row('profiler=AdvancedProfiler(dirpath=".", filename="profile")'),
    ],
    "Loggers": [
        Row('logger=CSVLogger(".")'),
        Row('logger=TensorBoardLogger(".")'),
        Row('logger=[CSVLogger("."), TensorBoardLogger(".")]'),
        Row('logger=WandbLogger(save_dir=".", mode="offline")', processes=True),
    ],
    "Callbacks": [
        Row('callbacks=[EarlyStopping("val/loss")], max_epochs=2'),
        Row('callbacks=[ModelCheckpoint(monitor="val/loss", save_top_k=2)], enable_checkpointing=True'),
        Row("callbacks=[ModelCheckpoint(save_last=True)], enable_checkpointing=True"),
        Row("callbacks=[ModelCheckpoint(save_weights_only=True)], enable_checkpointing=True"),
        Row('callbacks=[OnExceptionCheckpoint(".")], enable_checkpointing=True'),
        Row('callbacks=[LearningRateMonitor("step")], logger=CSVLogger(".")'),
        Row('callbacks=[DeviceStatsMonitor()], logger=CSVLogger(".")'),
        Row("callbacks=[ModelSummary(2)], enable_model_summary=True"),
        Row("callbacks=[Timer()]"),
        Row("callbacks=[GradientAccumulationScheduler({0: 2})]"),
        Row("callbacks=[StochasticWeightAveraging(1e-3)], max_epochs=3", settings="scheduler=constant"),
        Row("callbacks=[EMAWeightAveraging()]"),
        Row("callbacks=[RichProgressBar()], enable_progress_bar=True"),
        Row("callbacks=[LearningRateFinder(num_training_steps=5)]"),
        Row(
            "callbacks=[BatchSizeFinder(max_trials=1, steps_per_trial=1)]",
            "The learning-rate schedule ends after 3 steps, and this training has 6",
        ),
        Row("callbacks=[BatchSizeFinder(max_trials=1)]", settings="scheduler=constant"),
        Row("callbacks=[LambdaCallback(on_train_end=lambda *_: None)]"),
    ],
    "Calls": [
        Row("trainer.validate(module, data)"),
        Row("trainer.test(module, data)"),
        Row("trainer.predict(module, data)"),
        Row("trainer.fit(module, DataLoader(data.examples('train'), batch_size=4, shuffle=True))"),
        Row("trainer.fit(module, data.train_dataloader(), data.val_dataloader())"),
        Row("trainer.validate(module, DataLoader(data.examples('val'), batch_size=3))"),
        Row("trainer.predict(module, DataLoader(data.examples('test'), batch_size=3))"),
        Row(
            "trainer.validate(module, [data.val_dataloader(), data.val_dataloader()])",
            "The val loader has no examples of attnlab: give one DataLoader of data.examples('val')",
        ),
        Row(
            "trainer.validate(module, DataLoader([1, 2]))",
            "The val loader has no examples of attnlab: give one DataLoader of data.examples('val')",
        ),
        Row(
            "trainer.fit(module, data); trainer.save_checkpoint('a.ckpt'); "
            "Seq2SeqModule.load_from_checkpoint('a.ckpt').translate('3 4 5')"
        ),
        Row(
            "trainer.fit(module, data); trainer.save_checkpoint('b.ckpt', weights_only=True); "
            "attnlab.load('b.ckpt').translate('3 4 5')"
        ),
        Row(
            "trainer.fit(module, data); trainer.save_checkpoint('c.ckpt'); "
            "Trainer(max_epochs=2, **quiet).fit(module, data, ckpt_path='c.ckpt')",
            settings="scheduler=constant",
        ),
        Row(
            "trainer.fit(module, data); trainer.save_checkpoint('d.ckpt'); "
            "Trainer(max_epochs=4, **quiet).fit(module, data, ckpt_path='d.ckpt')",
            LONGER,
        ),
        Row("Tuner(trainer).lr_find(module, data, num_training=5)"),
        Row("Tuner(trainer).scale_batch_size(module, data, max_trials=1, steps_per_trial=1)"),
        Row("Tuner(trainer).scale_batch_size(module, data, mode='binsearch', max_trials=1)"),
        Row("trainer.fit(pickle.loads(pickle.dumps(module)), data)"),
        Row("trainer.fit(copy.deepcopy(module), data)"),
        Row(
            "trainer.fit(torch.compile(module), data)",
            "torch.compile would compile the loops over positions again for each length",
        ),
        Row(
            "module.network.compile(); trainer.fit(module, data)",
            "torch.compile would compile the loops over positions again for each length",
        ),
    ],
}
