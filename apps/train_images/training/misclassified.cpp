#include "lockstep/apps/train_images/training/misclassified.h"

#include <torch/utils.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/callbacks/image_tensor.h"

namespace lockstep::apps {
namespace {

constexpr int64_t kShown = 24;
constexpr int64_t kTargetsAtOnce = 1000;

Example examples_of(const ImageDataset& dataset, int64_t begin, int64_t end) {
  std::vector<size_t> indices(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), static_cast<size_t>(begin));
  return images_of(dataset, indices);
}

torch::Tensor targets_of(const ImageDataset& dataset) {
  std::vector<torch::Tensor> targets;
  const int64_t size = size_of(dataset);
  for (int64_t begin = 0; begin < size; begin += kTargetsAtOnce)
    targets.push_back(examples_of(dataset, begin, std::min(begin + kTargetsAtOnce, size)).target);
  return torch::cat(targets);
}

}  // namespace

void record_misclassified(const TrainingRun& run, const torch::Tensor& logits) {
  if (run.record == nullptr) return;
  const torch::NoGradGuard no_grad;
  const auto [confidence, predicted] = logits.to(torch::kDouble).softmax(1).max(1);
  const auto targets = targets_of(run.data.test);
  const auto wrong = predicted.ne(targets).nonzero().squeeze(1);
  const auto order = confidence.index_select(0, wrong).argsort(/*dim=*/0, /*descending=*/true);
  std::vector<MisclassifiedImage> images;
  for (int64_t i = 0; i < std::min(wrong.size(0), kShown); ++i) {
    const auto index = wrong[order[i].item<int64_t>()].item<int64_t>();
    images.push_back({.png = encode_image(examples_of(run.data.test, index, index + 1).data[0]),
                      .true_class = class_name(run.data, targets[index].item<int64_t>()),
                      .predicted_class = class_name(run.data, predicted[index].item<int64_t>()),
                      .confidence = confidence[index].item<double>()});
  }
  run.record->set_misclassified(std::move(images), wrong.size(0));
}

}  // namespace lockstep::apps
