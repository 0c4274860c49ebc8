#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/images/image_transform.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

enum class MnistSplit { kTrain, kTest };

struct MnistOptions {
  MnistSplit split = MnistSplit::kTrain;
  /// Number of examples to use, from the start of the files, whose order is already shuffled; 0 uses all.
  int64_t limit = 0;
  /// See ImageTransform.
  int64_t image_size = 0;
  int64_t channels = 1;
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};
};

/// MNIST, or any data set in its format. Reads the two IDX files of a split, each plain or with .gz:
/// `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, or `t10k-...` for the test split. Grey images in
/// 10 classes, held in memory. The interface is that of CollatedDataset.
///
/// Example:
///
///     Mnist test("mnist", {.split = MnistSplit::kTest});
///     auto batches = strategy.distribute_dataset(test, {.global_batch_size = 256});
class Mnist {
 public:
  /// Blocks until both files are read. Throws DataError if a file is missing or damaged (see read_idx()), the
  /// numbers of images and labels differ, there are no images, or a label is above 9. Throws
  /// std::invalid_argument if an option is out of range.
  explicit Mnist(const std::string& folder, const MnistOptions& options = {});

  std::optional<size_t> size() const { return examples_.size(); }
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;
  std::string identity() const { return "MNIST's files: " + examples_.identity(); }

 private:
  ImageTransform transform_;
  TensorDataset examples_;
};

/// Returns whether the folder holds at least one of MNIST's four files. The errors of Mnist name the missing
/// ones.
bool holds_mnist(const std::string& folder);

}  // namespace lockstep
