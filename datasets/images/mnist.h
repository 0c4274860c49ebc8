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
  /// The first so many examples in the files' order, which is shuffled; 0 takes all.
  int64_t limit = 0;
  /// See ImageTransform.
  int64_t image_size = 0;
  int64_t channels = 1;
  std::vector<double> mean = {0.0};
  std::vector<double> stddev = {1.0};
};

/// MNIST, or anything in its format, out of the pair of IDX files of a split, each plain or with .gz:
/// `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, `t10k-...` for the test split. Grey images in 10
/// classes, read whole into memory. See CollatedDataset for the interface.
class Mnist {
 public:
  /// Blocks until both files are read. Throws DataError for missing and damaged files (see read_idx()),
  /// different numbers of images and labels, no images, and labels above 9; std::invalid_argument for options
  /// out of range.
  explicit Mnist(const std::string& folder, const MnistOptions& options = {});

  std::optional<size_t> size() const { return examples_.size(); }
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const;

 private:
  ImageTransform transform_;
  TensorDataset examples_;
};

/// Whether the folder holds at least one of MNIST's four files. Mnist's errors name those that are missing.
bool holds_mnist(const std::string& folder);

}  // namespace lockstep
