#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <torch/data/example.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/datasets/images/image_augmentation.h"
#include "lockstep/datasets/images/mixup.h"
#include "lockstep/datasets/tensors/collated_dataset.h"

namespace lockstep {

struct AugmentedDatasetOptions {
  ImageAugmentation images = {};
  /// Mixes images after they were changed. Off by default.
  Mixup mixup = {};
};

/// A dataset of images with random changes to train on. strategy.distribute_dataset() asks it for the
/// examples of each epoch, and the changes are made on each replica's device, after the dataset's own
/// device_transform(). Batches hold what the changes need, too; map them to plain examples by
/// augmented_examples. A training on any number of replicas or workers, resumed or not, gets the same images.
///
/// With mixup, get_batch() also reads each example's partner, so the host reads twice as many images, in any
/// order. Targets become probabilities, as Mixup::mix() says; cross_entropy and CategoricalAccuracy take
/// them.
///
/// A dataset that is read in chunks (ChunkedDataset) stays one. With mixup, partners may be in any chunk, so
/// all chunks should fit into its memory.
///
/// Example:
///
///     const AugmentedDataset images(ImageFolder("train", {.image_size = 64}),
///                                   {.images = {.crop_padding = 4, .flip = true, .seed = 1}});
///     auto batches = strategy.distribute_dataset(images, {.global_batch_size = 256, .shuffle_seed = 1})
///                        .map(augmented_examples);
template <CollatedDataset D>
class AugmentedDataset {
 public:
  using Examples = torch::data::Example<>;
  /// Examples, their changes, their partners, the partners' changes, and the examples' weights. The last
  /// three are undefined without mixup.
  using Batch = std::tuple<Examples, at::Tensor, Examples, at::Tensor, at::Tensor>;

  /// Throws std::invalid_argument naming an option that is out of range. The options' mean and stddev must be
  /// those of the dataset.
  AugmentedDataset(D dataset, AugmentedDatasetOptions options)
      : dataset_(std::move(dataset)), options_(std::move(options)) {
    options_.images.check();
    options_.mixup.check();
    if (options_.mixup.is_on() && !size())
      throw std::invalid_argument("[AugmentedDataset] expected a dataset that knows its size, for mixup");
  }

  std::optional<size_t> size() const { return dataset_.size(); }

  /// Returns the examples with the changes that are drawn for them in this epoch, which are not made yet.
  /// Blocks and throws as the dataset's get_batch().
  Batch get_batch(c10::ArrayRef<size_t> indices, int64_t epoch) const {
    Batch batch(dataset_.get_batch(indices), options_.images.draw(indices, epoch), Examples{}, at::Tensor(),
                at::Tensor());
    if (options_.mixup.is_on()) {
      const auto partners = options_.mixup.partners(indices, epoch, *size());
      std::get<2>(batch) = dataset_.get_batch(partners);
      std::get<3>(batch) = options_.images.draw(partners, epoch);
      std::get<4>(batch) = options_.mixup.weights(indices, epoch);
    }
    return batch;
  }
  Batch get_batch(c10::ArrayRef<size_t> indices) const { return get_batch(indices, 0); }

  /// Makes the changes on the batch's device. The result has only examples.
  Batch device_transform(Batch batch) const {
    auto& [examples, changes, partners, of_partners, weights] = batch;
    examples = changed(std::move(examples), changes);
    if (options_.mixup.is_on())
      examples = options_.mixup.mix(examples, changed(std::move(partners), of_partners), weights);
    return {std::move(examples), at::Tensor(), Examples{}, at::Tensor(), at::Tensor()};
  }

  /// Returns the dataset's identity and the changes.
  std::string identity() const {
    return dataset_.identity() + ", augmented: " + options_.images.describe() +
           (options_.mixup.is_on() ? ", " + options_.mixup.describe() : "");
  }

  // As the dataset's, if it is a ChunkedDataset.
  auto chunk_sizes() const requires requires(const D& dataset) { dataset.chunk_sizes(); }
  { return dataset_.chunk_sizes(); }
  auto max_open_chunks() const requires requires(const D& dataset) { dataset.max_open_chunks(); }
  { return dataset_.max_open_chunks(); }
  template <typename OrderWithin>
  void prefetch_chunks(const std::vector<size_t>& chunks, const OrderWithin& order_within) const requires
      requires(const D& dataset) {
    dataset.prefetch_chunks(chunks, order_within);
  }
  { dataset_.prefetch_chunks(chunks, order_within); }

 private:
  Examples changed(Examples examples, const at::Tensor& changes) const {
    Examples finished = dataset_.device_transform(std::move(examples));
    return {options_.images.apply(finished.data, changes), std::move(finished.target)};
  }

  D dataset_;
  AugmentedDatasetOptions options_;
};

/// Takes the examples out of a batch of an AugmentedDataset.
inline constexpr auto augmented_examples = [](const auto& batch) { return std::get<0>(batch); };

}  // namespace lockstep
