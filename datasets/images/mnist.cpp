#include "lockstep/datasets/images/mnist.h"

#include <torch/data/example.h>
#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/idx_file.h"
#include "lockstep/datasets/tensors/collated_dataset.h"

namespace lockstep {

static_assert(CollatedDataset<Mnist>);

namespace {

constexpr uint8_t kMaxLabel = 9;

std::string image_file(MnistSplit split) {
  return split == MnistSplit::kTrain ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
}

std::string label_file(MnistSplit split) {
  return split == MnistSplit::kTrain ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
}

/// Returns the path of a file or of its compressed form, or nothing if neither exists.
std::optional<std::string> find_file(const std::string& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const auto path = std::filesystem::path(folder) / (name + suffix);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  return std::nullopt;
}

std::string require_file(const std::string& folder, const std::string& name) {
  const auto path = find_file(folder, name);
  if (!path)
    throw DataError(folder + ": expected MNIST's " + name + " or " + name + ".gz, but there is neither");
  return *path;
}

TensorDataset read_examples(const std::string& folder, const MnistOptions& options) {
  if (options.limit < 0) {
    throw std::invalid_argument("[Mnist] limit: expected 0 or more, but got " +
                                std::to_string(options.limit));
  }
  const std::string image_path = require_file(folder, image_file(options.split));
  const std::string label_path = require_file(folder, label_file(options.split));
  const IdxArray labels = read_idx(label_path, {.num_dimensions = 1});
  IdxArray images = read_idx(image_path, {.num_dimensions = 3});
  const int64_t count = images.dimensions[0];
  if (labels.dimensions[0] != count) {
    throw DataError(label_path, "number of labels", std::to_string(count) + " as in " + image_path,
                    std::to_string(labels.dimensions[0]));
  }
  if (count == 0) throw DataError(image_path, "number of images", "at least one", "none");
  if (images.values.empty()) {
    throw DataError(image_path, "image size", "at least 1 x 1",
                    std::to_string(images.dimensions[2]) + " x " + std::to_string(images.dimensions[1]));
  }
  const auto wrong = std::find_if(labels.values.begin(), labels.values.end(),
                                  [](uint8_t label) { return label > kMaxLabel; });
  if (wrong != labels.values.end()) {
    throw DataError(label_path, "label " + std::to_string(wrong - labels.values.begin()), "0 to 9",
                    std::to_string(*wrong));
  }

  const int64_t kept = options.limit == 0 ? count : std::min(count, options.limit);
  const at::Tensor data =
      torch::from_blob(images.values.data(), {kept, 1, images.dimensions[1], images.dimensions[2]},
                       torch::kByte)
          .clone();
  at::Tensor target = torch::empty({kept}, torch::kLong);
  std::copy_n(labels.values.begin(), kept, target.mutable_data_ptr<int64_t>());
  return {data, target};
}

}  // namespace

Mnist::Mnist(const std::string& folder, const MnistOptions& options)
    : transform_(make_transform(options)), examples_(read_examples(folder, options)) {}

torch::data::Example<> Mnist::get_batch(c10::ArrayRef<size_t> indices) const {
  return examples_.get_batch(indices);
}

torch::data::Example<> Mnist::device_transform(torch::data::Example<> batch) const {
  return {transform_(batch.data), std::move(batch.target)};
}

bool holds_mnist(const std::string& folder) {
  for (const MnistSplit split : {MnistSplit::kTrain, MnistSplit::kTest}) {
    if (find_file(folder, image_file(split)) || find_file(folder, label_file(split))) return true;
  }
  return false;
}

}  // namespace lockstep
