"""Models of TensorFlow and Keras for tests, and what TFLite makes of one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers


@cache
def cnn() -> Any:
    """A convolution, a normalisation, a depthwise convolution, poolings and a dense layer, of images NHWC."""
    keras.utils.set_random_seed(0)
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(8, 3, padding="same", name="stem")(image)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.ReLU(name="act")(x)
    x = layers.DepthwiseConv2D(3, strides=2, padding="same", name="depth")(x)
    x = layers.MaxPool2D(name="pool")(x)
    x = layers.GlobalAveragePooling2D(name="mean")(x)
    built = keras.Model(image, layers.Dense(10, activation="softmax", name="head")(x), name="net")
    rng = np.random.default_rng(0)
    built.get_layer("norm").set_weights([rng.uniform(0.5, 2, 8) for _ in range(4)])
    return built


def recurrent(layer: str) -> Any:
    """A recurrent layer over six steps, and a dense one."""
    keras.utils.set_random_seed(0)
    steps = keras.Input((6, 5), name="steps")
    return keras.Model(steps, layers.Dense(2, name="head")(getattr(layers, layer)(8, name="cell")(steps)), name="net")


def attention() -> Any:
    """An embedding, attention with a residual, a normalisation, GELU."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((7,), dtype="int32", name="ids")
    x = layers.Embedding(50, 16, name="embedding")(ids)
    y = layers.MultiHeadAttention(2, 8, name="attention")(x, x)
    z = layers.LayerNormalization(name="norm")(layers.Add(name="residual")([x, y]))
    return keras.Model(ids, layers.Dense(3, activation="gelu", name="head")(z), name="net")


def grouped() -> Any:
    """Convolutions of each channel, and of groups of two."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 8), name="image")
    x = layers.Conv2D(8, 3, padding="same", groups=8, name="fine")(image)
    return keras.Model(image, layers.Conv2D(12, 3, groups=4, name="coarse")(x), name="net")


def entropy() -> Any:
    """A function of operators that are not compiled."""

    @tf.function(input_signature=[tf.TensorSpec((4,), tf.float32, name="a"), tf.TensorSpec((4,), tf.float32, name="b")])
    def entropy(a: Any, b: Any) -> Any:
        return tf.math.lgamma(a) + tf.math.lgamma(b) - tf.math.digamma(a + b)

    return entropy


@cache
def tflite() -> bytes:
    """`cnn` for TFLite."""
    return bytes(tf.lite.TFLiteConverter.from_keras_model(cnn()).convert())


@cache
def quantised() -> bytes:
    """`cnn` for TFLite, all of it in 8 bits."""

    def samples() -> Iterator[list[Any]]:
        rng = np.random.default_rng(0)
        for _ in range(8):
            yield [rng.standard_normal((1, 16, 16, 3), np.float32)]

    converter = tf.lite.TFLiteConverter.from_keras_model(cnn())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = samples
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())
