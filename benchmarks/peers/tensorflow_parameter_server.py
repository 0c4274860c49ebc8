"""TensorFlow's ParameterServerStrategy on the work of click_benchmark: Wide & Deep with an embedding table for each of 26
columns, or one for all of them, cut over the servers, Adagrad. Needs tensorflow. One process of a job that launch_local.sh
starts: the chief prints how many rows a second were trained on. Batches lie ready in the workers' memory."""

import argparse
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# The launcher holds each process's port for it with a socket, which this server makes itself.
if os.environ.get("LOCKSTEP_LISTEN_FD"):
    os.close(int(os.environ["LOCKSTEP_LISTEN_FD"]))

import numpy as np
import tensorflow as tf

NUMBERS, CATEGORIES, BATCHES = 13, 26, 64
LEARNING_RATE = 0.05


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, choices=(1, CATEGORIES), default=CATEGORIES)
    parser.add_argument("--table-rows", type=int, default=100_000, help="of each table")
    parser.add_argument("--embedding-dim", type=int, default=64)
    parser.add_argument("--units", default="64", help="of the hidden layers")
    parser.add_argument("--global-batch-size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warmup-steps", type=int, default=40)
    parser.add_argument("--unique", action="store_true", help="look each row up once, however often its id comes")
    return parser.parse_args()


def make_batches(flags):
    """As many ids of each column are frequent and rare as in those that train_ctr draws."""
    draw = np.random.default_rng(1)
    counts = np.round(8 * (2000 / 8) ** (np.arange(CATEGORIES) / (CATEGORIES - 1)))
    hashed = draw.integers(0, flags.table_rows, (CATEGORIES, 2001))
    size = (BATCHES, flags.global_batch_size)
    ranks = np.minimum(counts, np.power(counts + 1, draw.random((*size, CATEGORIES)))).astype(np.int64)
    return (np.log1p(np.exp(1.2 * draw.standard_normal((*size, NUMBERS)))).astype(np.float32),
            hashed[np.arange(CATEGORIES), ranks], (draw.random(size) < 0.3).astype(np.float32))


class Adagrad:
    """By TensorFlow's fused operators, which run where the variable is."""

    def __init__(self, strategy, variables):
        self.sums = {}
        for variable in variables:
            with strategy.extended.colocate_vars_with(variable):
                self.sums[variable.ref()] = tf.Variable(tf.fill(variable.shape, 0.01), trainable=False)

    def apply(self, variable, gradient):
        shared = {"var": variable.handle, "accum": self.sums[variable.ref()].handle, "lr": LEARNING_RATE, "epsilon": 1e-10}
        if isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceSparseApplyAdagradV2(grad=gradient.values, indices=gradient.indices, **shared)
        else:
            tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, **shared)


def run_chief(resolver, flags):
    servers = len(resolver.cluster_spec().job_tasks("ps"))
    strategy = tf.distribute.ParameterServerStrategy(
        resolver, variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(256 << 10, servers))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    units = [NUMBERS + CATEGORIES * flags.embedding_dim, *map(int, flags.units.split(",")), 1]
    with strategy.scope():
        limit = flags.table_rows ** -0.5
        tables = [tf.Variable(tf.random.uniform([flags.table_rows, flags.embedding_dim], -limit, limit))
                  for _ in range(flags.tables)]
        weights = [tf.Variable(tf.zeros([flags.table_rows, 1])) for _ in range(flags.tables)]
        linear = [tf.Variable(tf.random.normal([NUMBERS, 1], stddev=0.1)), tf.Variable(tf.zeros([1]))]
        layers = [(tf.Variable(tf.random.normal(shape, stddev=shape[0] ** -0.5)), tf.Variable(tf.zeros(shape[1:])))
                  for shape in zip(units, units[1:])]
        # Of those that are cut, their shards.
        variables = [shard for whole in (*tables, *weights, *linear, *sum(layers, ()))
                     for shard in getattr(whole, "variables", [whole])]
        optimizer = Adagrad(strategy, variables)

    def look_up_one(whole, ids):
        if not flags.unique:
            return tf.nn.embedding_lookup(whole, ids)
        distinct, places = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.gather(tf.nn.embedding_lookup(whole, distinct), places)
        return tf.reshape(rows, tf.concat([tf.shape(ids), whole.shape[1:]], 0))

    def look_up(wholes, ids):
        """[rows, columns of the table, one for each category], whatever the tables."""
        if flags.tables == 1:
            return look_up_one(wholes[0], ids)
        return tf.stack([look_up_one(whole, ids[:, column]) for column, whole in enumerate(wholes)], 1)

    @tf.function
    def step(batches):
        numbers, ids, labels = next(batches)
        with tf.GradientTape() as tape:
            hidden = tf.concat([numbers, tf.reshape(look_up(tables, ids), [-1, CATEGORIES * flags.embedding_dim])], 1)
            for place, (weight, bias) in enumerate(layers):
                hidden = tf.linalg.matmul(hidden, weight) + bias
                if place + 1 < len(layers):
                    hidden = tf.nn.relu(hidden)
            logits = hidden + tf.linalg.matmul(numbers, linear[0]) + linear[1] + tf.reduce_sum(look_up(weights, ids), 1)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, tf.squeeze(logits, 1)))
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            optimizer.apply(variable, gradient)
        return loss

    def dataset():
        return tf.data.Dataset.from_tensor_slices(make_batches(flags)).repeat().prefetch(2)

    batches = iter(coordinator.create_per_worker_dataset(dataset))

    def train(steps):
        for _ in range(steps):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()

    train(flags.warmup_steps)
    begin = time.perf_counter()
    train(flags.steps)
    seconds = time.perf_counter() - begin
    print(json.dumps({"rows_per_second": flags.steps * flags.global_batch_size / seconds}), flush=True)


def main():
    flags = parse_flags()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    resolver.rpc_layer = "grpc"
    if resolver.task_type == "chief":
        run_chief(resolver, flags)
        return
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                         protocol="grpc", config=threads, start=True).join()


main()
