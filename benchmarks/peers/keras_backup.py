"""Keras' BackupAndRestore under TensorFlow's MultiWorkerMirroredStrategy: for reliability_benchmark.py.

Keras' MobileNetV2 with one dense layer, Adam, random images. TF_CONFIG names the workers. Needs tensorflow and tf_keras: Keras
3's fit() refuses this strategy's batches.
"""

import json
import os
import shutil
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf

import backup_lines

flags = backup_lines.parse_flags()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
backup_lines.say_pid(rank)
shape = (flags.image_size, flags.image_size, 3)
with strategy.scope():
    convolutions = tf.keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=shape, pooling="avg")
    model = tf.keras.Sequential([convolutions, tf.keras.layers.Dense(10)])
    model.compile(tf.keras.optimizers.Adam(1e-3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
images = tf.random.normal((flags.global_batch_size, *shape))
labels = tf.random.uniform((flags.global_batch_size,), 0, 10, tf.int32)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
dataset = tf.data.Dataset.from_tensors((images, labels)).repeat().with_options(options)
# The first worker's; what the others write is temporary.
folder = os.path.join(flags.backup_dir, "backup")


class SaySteps(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.number = None

    def on_train_batch_end(self, batch, logs=None):
        count = int(self.model.optimizer.iterations.numpy())
        if self.number is None and rank == 0:
            backup_lines.say("begin", rank, count - 1)
        self.number = count
        if rank == 0:
            backup_lines.say("step", rank, count)


class TimeSteps(tf.keras.callbacks.Callback):
    """From the end of the first step to that of the last one."""

    def on_train_begin(self, logs=None):
        self.times = []

    def on_train_batch_end(self, batch, logs=None):
        self.times.append(time.monotonic())


def fit(steps, callbacks):
    # The callback deletes it at the end of its fit, and the next fit without the callback asks for it.
    model._training_state = None  # pylint: disable=protected-access
    model.fit(dataset, steps_per_epoch=steps, epochs=1, callbacks=callbacks, verbose=0)


if flags.blocks:
    fit(2, [])
    for block in range(flags.blocks):
        for kind in backup_lines.kinds_of_block(["none", "synchronous"], block):
            shutil.rmtree(folder, ignore_errors=True)
            # Once, in the middle of the steps that are timed: from the end of the first one.
            backup = [tf.keras.callbacks.BackupAndRestore(folder, save_freq=flags.steps // 2 + 1)]
            clock = TimeSteps()
            fit(flags.steps + 1, (backup if kind != "none" else []) + [clock])
            if rank == 0:
                backup_lines.say_block(kind, clock.times[-1] - clock.times[0])
else:
    fit(flags.steps, [tf.keras.callbacks.BackupAndRestore(folder, save_freq=flags.save_every), SaySteps()])
