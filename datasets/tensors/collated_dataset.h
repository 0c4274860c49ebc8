#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <cstddef>
#include <optional>

namespace lockstep {

/// What every dataset in this folder offers, in the style of torch::data's datasets:
///
///     std::optional<size_t> size() const;
///         The number of examples.
///
///     torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
///         These examples, already collated, on the CPU: for images `data` is uint8 [n, channels, height,
///         width] and `target` int64 [n], n = indices.size(), which may be 0. Safe to call from several
///         threads at once. Throws std::invalid_argument for an index beyond the size, DataError where a file
///         turns out unusable.
///
///     torch::data::Example<> device_transform(torch::data::Example<> batch) const;
///         What is left to do with a batch on the device that trains on it, wherever `batch.data` lies:
///         images become float32, resized and normalised (ImageTransform). Splitting the work so lets uint8
///         cross the bus. Safe to call from several threads at once.
///
/// Datasets are values: a copy is cheap and shares the images.
template <typename T>
concept CollatedDataset = std::copy_constructible<T> &&
    requires(const T& dataset, c10::ArrayRef<size_t> indices, torch::data::Example<> batch) {
  { dataset.size() } -> std::same_as<std::optional<size_t>>;
  { dataset.get_batch(indices) } -> std::same_as<torch::data::Example<>>;
  { dataset.device_transform(batch) } -> std::same_as<torch::data::Example<>>;
};

}  // namespace lockstep
