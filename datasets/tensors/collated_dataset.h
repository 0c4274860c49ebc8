#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>

namespace lockstep {

/// Interface of the image and tensor datasets, in the style of torch::data's datasets:
///
///     std::optional<size_t> size() const;
///         Returns the number of examples.
///
///     torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
///         Returns these examples, collated, on the CPU. For images `data` is uint8 [n, channels, height,
///         width], unless they are on the devices (ImageCache::kDevice), and `target` int64 [n]. n =
///         indices.size() may be 0. Thread-safe. Throws std::invalid_argument if an index is out of range,
///         DataError if a file turns out to be unusable.
///
///     torch::data::Example<> device_transform(torch::data::Example<> batch) const;
///         Finishes a batch on the training device, wherever `batch.data` is: images become float32, resized
///         and normalized (ImageTransform). This way only uint8 is copied to the device. Thread-safe.
///
///     std::string identity() const;
///         Says which examples these are: the same text on every machine that has the same ones, without
///         paths. It covers everything cheap to read, not every value. Workers that step together compare it
///         before they train.
///
/// Datasets are values: a copy is cheap and shares the images.
template <typename T>
concept CollatedDataset = std::copy_constructible<T> &&
    requires(const T& dataset, c10::ArrayRef<size_t> indices, torch::data::Example<> batch) {
  { dataset.size() } -> std::same_as<std::optional<size_t>>;
  { dataset.get_batch(indices) } -> std::same_as<torch::data::Example<>>;
  { dataset.device_transform(batch) } -> std::same_as<torch::data::Example<>>;
  { dataset.identity() } -> std::same_as<std::string>;
};

}  // namespace lockstep
