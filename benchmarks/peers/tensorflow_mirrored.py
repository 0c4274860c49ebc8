"""TensorFlow's MirroredStrategy on logical CPUs: Keras's MobileNetV2 with two dense layers, Adam, random images.

Needs tensorflow. The whole job is one process.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import job

flags = job.parse_flags().parse_args()
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * flags.replicas)
strategy = tf.distribute.MirroredStrategy([f"CPU:{replica}" for replica in range(flags.replicas)])
shape = (flags.image_size, flags.image_size, 3)

with strategy.scope():
    convolutions = tf.keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=shape)
    model = tf.keras.Sequential([
        convolutions,
        tf.keras.layers.AveragePooling2D(2),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(512),
        tf.keras.layers.Dense(10),
    ])
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def replica_step(images, labels):
    with tf.GradientTape() as tape:
        losses = loss_of(labels, model(images, training=True))
        loss = tf.nn.compute_average_loss(losses, global_batch_size=flags.global_batch_size)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def step(batch):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, args=batch), axis=None)


images = tf.random.normal((flags.global_batch_size, *shape))
labels = tf.random.uniform((flags.global_batch_size,), 0, 10, tf.int32)
dataset = tf.data.Dataset.from_tensors((images, labels)).repeat()
batches = iter(strategy.experimental_distribute_dataset(dataset))


def train(steps):
    for _ in range(steps):
        loss = step(next(batches))
    loss.numpy()


job.serve(train, sum(int(tf.size(variable)) for variable in model.trainable_variables))
